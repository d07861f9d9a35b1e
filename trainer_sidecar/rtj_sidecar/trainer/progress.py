"""How far the trainer is: from its log lines, from its progress file, from its checkpoints.

A log line is written for people, so a step read from one is advice until it has equalled the step
of a checkpoint. Must never fail on any input, and never let a line decide what is resumed.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rtj_api.wire import ProgressView

MAX_LINE = 8192
MAX_BEHIND = 1 << 20

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf(?:inity)?"
# tqdm.std.tqdm.format_meter: `desc: 45%|####  | 45/100 [00:10<00:12, 4.5it/s, loss=1.2]`.
_BAR = re.compile(r"(?:^|[\s:])\d{1,3}%\|[^|]{0,400}\|\s*(\d+)/(\d+)\s*\[")
_BAR_WORDS = re.compile(r"^\W*(epoch|train|training|steps?|iter|iteration|progress)?\b", re.I)
# Megatron-LM training_log: ` iteration      100/  500000 | consumed samples: … | lm loss: … |`
_MEGATRON = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|", re.I)
_STEP = re.compile(
    r"(?<![A-Za-z0-9_\-.])(?:global[_ -]?|train[_ -]?)?(?:step|iter|iteration)\b['\"]?"
    r"\s*(?:[:=#]\s*|\[\s*|\(\s*)?(\d{1,15})(?![\d.]*\s*(?:ms|s/it|it/s|sec)\b)(?!\.\d)",
    re.I,
)
_EPOCH = re.compile(
    r"(?<![A-Za-z0-9_\-.])epoch\b['\"]?\s*(?:[:=#]\s*|\[\s*)?(\d{1,9}(?:\.\d+)?)", re.I
)
_LOSS = re.compile(
    r"(?<![A-Za-z0-9_\-.])((?:[a-z0-9]+[_ /-])?)loss\b['\"]?\s*[:=]?\s*(" + _NUMBER + r")(?![\w.])",
    re.I,
)
_NOT_TRAINING = re.compile(r"^(val|valid|validation|eval|test|dev|best|min)[_ /-]$", re.I)


@dataclass(frozen=True, slots=True)
class Sign:
    """What one line says. `epoch` may be a fraction; `total` is a progress bar's."""

    step: int | None = None
    epoch: float | None = None
    loss: float | None = None
    total: int | None = None

    @property
    def empty(self) -> bool:
        return self.step is None and self.epoch is None and self.loss is None


def read_line(line: str) -> Sign:
    """What one line of output says about progress; an empty Sign where nothing."""
    text = line[:MAX_LINE].strip()
    if not text or not any(character.isdigit() for character in text):
        return Sign()
    if text.startswith("{") and text.endswith("}"):
        return _from_mapping(_mapping(text))
    if bar := _BAR.search(text):
        return _from_bar(text, bar)
    step = _MEGATRON.search(text) or _STEP.search(text)
    epoch = _EPOCH.search(text)
    return Sign(
        step=int(step.group(1)) if step else None,
        epoch=float(epoch.group(1)) if epoch else None,
        loss=_loss(text),
    )


def _mapping(text: str) -> Mapping[str, object]:
    """A line that is a dict: JSON, or Python's repr of one (Hugging Face Trainer)."""
    try:
        found = json.loads(text)
    except ValueError:
        try:
            # `nan` and `inf` are names in a repr; as text they are read as numbers below.
            found = ast.literal_eval(re.sub(r":\s*(nan|-?inf)\b", r": '\1'", text))
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return {}
    return found if isinstance(found, dict) else {}


def _from_mapping(found: Mapping[str, object]) -> Sign:
    step = next(
        (found[k] for k in ("step", "global_step", "iteration", "iter") if k in found), None
    )
    loss = next(
        (found[k] for k in ("loss", "train_loss", "train/loss", "lm loss") if k in found), None
    )
    number = as_number(step)
    whole = number is not None and math.isfinite(number) and number == int(number) and number >= 0
    return Sign(
        step=int(number) if number is not None and whole else None,
        epoch=as_number(found.get("epoch")),
        loss=as_number(loss),
    )


def as_number(value: object) -> float | None:
    """A number, also where a framework prints it as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _from_bar(text: str, bar: re.Match[str]) -> Sign:
    before = text[: bar.start()].strip(" :")
    words = _BAR_WORDS.match(before)
    if before and not (words and words.group(1)):
        return Sign()  # Downloading, Loading checkpoint shards, Evaluating, …
    done, total = int(bar.group(1)), int(bar.group(2))
    epoch = _EPOCH.search(before)
    after = text[bar.end() :]
    if epoch is None:
        return Sign(step=done, loss=_loss(after), total=total)
    # Lightning counts batches within the epoch.
    number = int(float(epoch.group(1)))
    return Sign(step=number * total + done, epoch=float(number), loss=_loss(after), total=total)


def _loss(text: str) -> float | None:
    for match in _LOSS.finditer(text):
        if not _NOT_TRAINING.match(match.group(1)):
            return as_number(match.group(2))
    return None


class Follower:
    """New bytes of a file that grows and is rotated to `<name>.1`."""

    def __init__(self, path: Path, *, from_end: bool = False, back: int = 0) -> None:
        self._path = path
        self._inode: int | None = None
        self._offset = 0
        self._part = b""
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

    log: Sign = Sign()
    file: Sign = Sign()
    checkpoint_step: int | None = None
    checkpoint_epoch: float | None = None
    log_steps: frozenset[int] = frozenset()
    checkpoint_steps: frozenset[int] = frozenset()
    bar_total: int | None = None
    first_step_at: float | None = None
    updated_at: float | None = None

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
        return self._moved(replace(self, file=_merge(self.file, sign)), sign, now)

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
        base = {"first_step_at": self.first_step_at, "updated_at": self.updated_at}
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


def read_progress_line(line: str) -> Sign | None:
    """One line of the progress file; None where it is no JSON object with a step or a loss."""
    try:
        found = json.loads(line[: 4 * MAX_LINE])
    except ValueError:
        return None
    sign = _from_mapping(found) if isinstance(found, dict) else Sign()
    return None if sign.empty else sign
