"""Which save of a directory never seen before is its newest: the beginning of a run. Pure.

By global step; where steps restart with each epoch, by epoch and then step. Never by a name's text
or a time, and never by a guess: numbers of different units say nothing about each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtj_sidecar.checkpoints.types import FoundSave


@dataclass(frozen=True, slots=True)
class Mixed:
    """These two cannot be put in order."""

    one: FoundSave
    other: FoundSave


def newest_of(saves: Sequence[FoundSave]) -> FoundSave | Mixed | None:
    """The newest of whole saves that each state a step or an epoch; None for none."""
    newest: FoundSave | None = None
    for save in saves:
        if newest is None:
            newest = save
            continue
        order = _compare(save, newest)
        if order is None:
            return Mixed(newest, save)
        newest = save if order > 0 else newest
    return newest


def _compare(a: FoundSave, b: FoundSave) -> int | None:
    if _unit(a) != _unit(b):
        return None
    steps, epochs = _sign(a.step, b.step), _sign(a.epoch, b.epoch)
    if steps is None or epochs is None:
        return steps if steps is not None else epochs
    # Where the two disagree, steps restart with each epoch.
    return epochs or steps


def _unit(save: FoundSave) -> str:
    """What its number counts: `ckpt_3.pt` does not tell whether steps or epochs."""
    if save.step is None:
        return "epoch"
    return "number" if save.facts.get("unit") == "number" else "step"


def _sign(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else (a > b) - (a < b)
