"""How much of the training goes on from a save as if nothing had happened. Pure.

A framework that finds no optimizer, scheduler or random state mostly begins it anew without an
error, so the operator says before the first step what will be missing. Says only what was looked
for: a part that nobody can tell of makes nothing worse, and is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rtj_api.wire import Candidate

PARTS = ("optimizer", "scheduler", "scaler", "rng", "loader")
_WORDS: Mapping[str, str] = {
    "optimizer": "optimizer",
    "scheduler": "learning rate schedule",
    "scaler": "gradient scaler",
    "rng": "random state",
    "loader": "position in the data",
}
RESHARDS: Mapping[str, bool] = {
    "dcp": True,
    "orbax": True,
    "nemo": True,
    "deepspeed": False,
    "nvrx-local": False,
}
"""By layout: whether the framework can load a save into another number of ranks. Others: it
depends on the script (`reference: docs/frameworks.md`)."""


class Quality(StrEnum):
    EXACT = "Exact"
    PARTIAL = "Partial"
    WEIGHTS_ONLY = "WeightsOnly"


@dataclass(frozen=True, slots=True)
class Fitness:
    """`message` names what is missing or differs; empty where nothing is."""

    quality: Quality
    message: str = ""


def fitness(save: Candidate, *, world_size: int) -> Fitness:
    """Of a resume from this save by `world_size` ranks."""
    missing = [part for part in PARTS if save.has.get(part) is False]
    unknown = [part for part in PARTS if part not in save.has and part != "scaler"]
    if save.full_state is False and "optimizer" not in missing:
        missing = ["optimizer", *missing]
    differs = _ranks(save, world_size)
    words = []
    if missing:
        words.append("without " + ", ".join(_WORDS[part] for part in missing))
    words += differs
    if "optimizer" in missing:
        return Fitness(Quality.WEIGHTS_ONLY, "; ".join(words))
    if missing or differs:
        return Fitness(Quality.PARTIAL, "; ".join(words))
    if unknown:
        told = ", ".join(_WORDS[part] for part in unknown)
        return Fitness(Quality.EXACT, f"nothing is known to be missing; it cannot be told: {told}")
    return Fitness(Quality.EXACT)


def _ranks(save: Candidate, world_size: int) -> list[str]:
    if save.world_size is None or save.world_size == world_size:
        return []
    can = RESHARDS.get(save.layout or "")
    how = {
        True: "its tensors can be split anew, not so random state and position in the data",
        False: "this layout cannot be loaded by another number of ranks",
        None: "whether it can be loaded so is up to the training script",
    }[can]
    return [f"saved by {save.world_size} ranks, resumed by {world_size}: {how}"]
