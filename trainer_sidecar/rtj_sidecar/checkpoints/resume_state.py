"""Which parts of a trainer's state a save holds, and what a resume from it would miss. Pure.

`FoundSave.facts["has"]` maps `optimizer`, `scheduler`, `scaler`, `rng` and `loader` to True (it is
in the save, or the framework computes it from what is) or False (looked for, and not there). A part
that cannot be told, or that such a trainer has none of, is absent. Each layout fills it from names
alone: top-level keys, file names, keys of a `.metadata`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

HAS = "has"
PARTS = ("optimizer", "scheduler", "scaler", "rng", "loader")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "optimizer": ("optim", "opt_state"),
    "scheduler": ("sched", "lr_state"),
    "scaler": ("scaler",),
    "rng": ("rng", "random_state", "seed_state"),
    "loader": ("dataloader", "data_loader", "dl_state", "sampler", "dataset_state", "data_iter"),
}


@dataclass(frozen=True, slots=True)
class ResumeState:
    """Parts by name, each in one of the three, in the order of `PARTS`."""

    held: tuple[str, ...]
    missing: tuple[str, ...]
    """Looked for and not there: a resume would begin these anew, mostly without an error."""
    unknown: tuple[str, ...]

    @property
    def weights_only(self) -> bool:
        return "optimizer" in self.missing


def resume_state(facts: Mapping[str, object]) -> ResumeState:
    """What the facts of a save or verdict say; all unknown where an older sidecar wrote them."""
    told = facts.get(HAS)
    has = told if isinstance(told, dict) else {}
    return ResumeState(
        held=tuple(part for part in PARTS if has.get(part) is True),
        missing=tuple(part for part in PARTS if has.get(part) is False),
        unknown=tuple(part for part in PARTS if not isinstance(has.get(part), bool)),
    )


def has_of(facts: Mapping[str, object]) -> dict[str, bool]:
    """`has` of a save's facts; empty where an older sidecar wrote them."""
    told = facts.get(HAS)
    if not isinstance(told, dict):
        return {}
    return {str(part): there for part, there in told.items() if isinstance(there, bool)}


def merged(many: Iterable[Mapping[str, bool]]) -> dict[str, bool]:
    """`has` of several files that are one save: a part that one of them holds is there."""
    told: dict[str, bool] = {}
    for has in many:
        for part, there in has.items():
            told[part] = told.get(part, False) or there
    return {part: told[part] for part in PARTS if part in told}


def held_by_name(names: Iterable[str]) -> dict[str, bool]:
    """The parts that names of files or keys show to be there; nothing is said of the others."""
    return {part: True for part, there in parts_named(names).items() if there}


def parts_named(names: Iterable[str], *, optimizer: bool | None = None) -> dict[str, bool]:
    """`has` from the names of keys or files where the trainer may keep all of its state.

    `optimizer`: what is known of it better than by names. A scaler is told only where it is there:
    few trainers need one. Names are compared in lower case; a part of a name is enough.
    """
    low = [name.lower() for name in names]
    has = {part: any(w in name for name in low for w in words) for part, words in _WORDS.items()}
    if optimizer is not None:
        has["optimizer"] = optimizer
    if not has["scaler"]:
        del has["scaler"]
    return {part: has[part] for part in PARTS if part in has}
