"""How far the trainer is: from its log lines, from its progress file, from its checkpoints.

A log line is written for people, so a step read from one is advice until it has equalled the step
of a checkpoint. Must never fail on any input, and never let a line decide what is resumed.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from rtj_api.wire import ProgressView

from rtj_sidecar.trainer.signs import MAX_LINE, NOTHING, Sign

MAX_BEHIND = 1 << 20
STEPS_KEPT, STEPS_LEAST = 32, 8  # of which the time of a step is the median


class Follower:
    """New bytes of a file that grows and is rotated to `<name>.1`."""

    def __init__(self, path: Path, *, from_end: bool = False, back: int = 0) -> None:
        self._path = path
        self._inode: int | None = None
        self._offset = 0
        self._part = b""
        self.written_at: float | None = None  # what was read last, or a little before
        if from_end:
            try:
                status = os.stat(path)
            except OSError:
                return
            self._inode, self._offset = status.st_ino, max(0, status.st_size - back)

    def lines(self) -> list[str]:
        """Whole lines since the last call; what is far behind the newest is skipped."""
        content = b""
        try:
            status = os.stat(self._path)
            if self._inode is not None and status.st_ino != self._inode:
                content += self._rest_of_older()
                self._offset = 0
            elif status.st_size < self._offset:
                self._offset = 0
            self._inode = status.st_ino
            self.written_at = status.st_mtime
            if status.st_size > self._offset:
                content += self._read(self._path)
        except OSError:
            return []
        if not content:
            return []
        pieces = re.split(rb"[\r\n]+", self._part + content)
        self._part = pieces.pop()[-MAX_LINE:]
        return [piece.decode("utf-8", "replace") for piece in pieces if piece]

    def _rest_of_older(self) -> bytes:
        older = self._path.with_name(self._path.name + ".1")
        try:
            return self._read(older) if os.stat(older).st_ino == self._inode else b""
        except OSError:
            return b""

    def _read(self, path: Path) -> bytes:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(self._offset, size - MAX_BEHIND))
            content = file.read(MAX_BEHIND)
            self._offset = file.tell()
        return content


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of one attempt's progress. Grows by `with_…`; times are Unix seconds."""

    log: Sign = NOTHING
    file: Sign = NOTHING
    checkpoint_step: int | None = None
    checkpoint_epoch: float | None = None
    log_steps: frozenset[int] = frozenset()
    checkpoint_steps: frozenset[int] = frozenset()
    bar_total: int | None = None
    first_step_at: float | None = None
    updated_at: float | None = None
    took: tuple[float, ...] = ()  # seconds of the newest steps, by the progress file

    @property
    def confirmed(self) -> bool:
        """Whether a step of the log has equalled a checkpoint's."""
        return bool(self.log_steps & self.checkpoint_steps)

    def with_log(self, sign: Sign, *, now: float) -> Progress:
        if sign.empty:
            return self
        if sign.total is not None:
            # An evaluation's bar has another total than the first, which is training's.
            if self.bar_total is not None and sign.total != self.bar_total:
                return self
            self = replace(self, bar_total=sign.total)
        merged = _merge(self.log, sign)
        steps = self.log_steps
        if merged.step is not None and merged.step not in steps:
            steps = frozenset(sorted({*steps, merged.step})[-512:])
        return self._moved(replace(self, log=merged, log_steps=steps), sign, now)

    def with_file(self, sign: Sign, *, now: float) -> Progress:
        if sign.empty:
            return self
        took, seconds = self.took, sign.step_seconds
        if seconds is not None and math.isfinite(seconds) and seconds > 0:
            took = (*took, seconds)[-STEPS_KEPT:]
        return self._moved(replace(self, file=_merge(self.file, sign), took=took), sign, now)

    def with_checkpoint(self, *, step: int | None, epoch: float | None, now: float) -> Progress:
        if step is None:
            return self
        known = replace(
            self,
            checkpoint_step=step,
            checkpoint_epoch=epoch,
            checkpoint_steps=frozenset(sorted({*self.checkpoint_steps, step})[-512:]),
        )
        return self._moved(known, Sign(step=step), now)

    def _moved(self, after: Progress, sign: Sign, now: float) -> Progress:
        first = self.first_step_at
        if first is None and sign.step is not None:
            first = now
        return replace(after, first_step_at=first, updated_at=now)

    def view(self) -> ProgressView:
        """Best source first: progress file, confirmed log, checkpoint, unconfirmed log."""
        base = {
            "first_step_at": self.first_step_at,
            "updated_at": self.updated_at,
            "step_seconds": median(self.took) if len(self.took) >= STEPS_LEAST else None,
        }
        loss = _finite(self.file.loss if self.file.loss is not None else self.log.loss)
        if self.file.step is not None:
            return ProgressView(
                step=self.file.step,
                epoch=_finite(self.file.epoch),
                loss=loss,
                source="file",
                confirmed=True,
                **base,
            )
        if self.log.step is not None and (self.confirmed or self.checkpoint_step is None):
            return ProgressView(
                step=self.log.step,
                epoch=_finite(self.log.epoch),
                loss=loss,
                source="log",
                confirmed=self.confirmed,
                **base,
            )
        if self.checkpoint_step is not None:
            epoch = self.log.epoch if self.log.epoch is not None else self.checkpoint_epoch
            return ProgressView(
                step=self.checkpoint_step,
                epoch=_finite(epoch),
                loss=loss,
                source="checkpoint",
                confirmed=True,
                **base,
            )
        source = "none" if self.log.empty else "log"
        return ProgressView(epoch=_finite(self.log.epoch), loss=loss, source=source, **base)


def _merge(old: Sign, new: Sign) -> Sign:
    return Sign(
        step=old.step if new.step is None else new.step,
        epoch=old.epoch if new.epoch is None else new.epoch,
        loss=old.loss if new.loss is None else new.loss,
    )


def _finite(value: float | None) -> float | None:
    # JSON has no NaN: that a loss is not finite is told by the log tail, not by a number.
    return value if value is not None and math.isfinite(value) else None
