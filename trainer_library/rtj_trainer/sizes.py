"""The size of the gang that a run has now, and what a change of it does to step and learning rate.

Takes what the operator says of an elastic gang (docs/elastic.md) before what it would reckon by
itself. Everything that it does is written into the next save.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Optional

from rtj_trainer import elastic, learning_rates

log = logging.getLogger("rtj_trainer")


class GangSize:
    """`now` is the size; `scale` what the operator last multiplied the learning rate by."""

    def __init__(self, now: elastic.Size, *, policy: str, things: Mapping[str, Any]) -> None:
        elastic.check(policy)
        self.now, self.scale = now, 1.0
        self._asked = now.accumulation
        self._policy, self._things = policy, things

    def take_up(self, saved: Mapping[str, Any]) -> str:
        """Goes on from what a save states. Returns what changed, "" where nothing did."""
        self.scale = float(saved.get("lr_scale", 1.0))
        if not saved.get("size"):
            return ""
        before, now = elastic.Size(*saved["size"]), self.now
        if (before.world, before.batch) == (now.world, now.batch):
            if saved.get("asked", self._asked) == self._asked:
                self.now = before  # a change of ranks before the save had made it
            return ""
        change = elastic.after_change(before, world=now.world, batch=now.batch, policy=self._policy)
        self.now = change.after
        self._multiply(change.factor)
        return change.said()

    def scale_as_told(self, scale: Optional[float]) -> None:
        """The operator's factor counts from the full gang, so what was applied before is undone."""
        if scale is not None and scale != self.scale:
            self._multiply(scale / self.scale)
            self.scale = scale

    def state(self) -> dict[str, Any]:
        """For the next save; `format` is that of the whole record, `asked` the accumulation
        that the script or the operator asks for, whatever a change of ranks made of it."""
        return {
            "format": 1,
            "size": [self.now.world, self.now.batch, self.now.accumulation],
            "asked": self._asked,
            "lr_policy": self._policy,
            "lr_scale": self.scale,
        }

    def _multiply(self, factor: float) -> None:
        if factor == 1.0:
            return
        schedulers = [thing for name, thing in self._things.items() if "sched" in name]
        learning_rates.multiply(
            factor, optimizer=self._things.get("optimizer"), schedulers=schedulers
        )
