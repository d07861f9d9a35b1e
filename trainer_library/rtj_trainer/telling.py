"""What is told of each step: to the sidecar's progress file, and to a record of the run's own.

The record lies beside the saves, in a hidden directory that no reader of saves enters, and is
bounded; after a resume it says how the steps beyond the save went the first time. Must never fail
a step: a line that cannot be written is left out.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any, Optional

HIDDEN = ".rtj_trainer"
_MOST_BYTES = 1 << 20

log = logging.getLogger("rtj_trainer")


def number(value: Any) -> Optional[float]:
    """A float of a number or a tensor with one element (of a GPU it is waited for)."""
    if value is None:
        return None
    return float(value.item() if hasattr(value, "item") else value)


class Told:
    """Lines of one process. `progress` is None where nobody reads it."""

    def __init__(self, directory: Path, *, rank: int, progress: Optional[Path]) -> None:
        self._record = directory / HIDDEN / f"steps-{rank}.jsonl"
        self._older = self._record.with_suffix(".older.jsonl")
        self._progress = progress
        self._handles: dict[Path, int] = {}
        self._refused: set[Path] = set()

    def tell(self, record: dict[str, Any]) -> None:
        """One step: `step`, and what of `epoch`, `loss`, `grad_norm`, `lr`, `samples`,
        `batch_hash`, `step_seconds`, `save_stall_seconds`, `resumed` is known."""
        line = (json.dumps(record) + "\n").encode()
        if self._progress is not None:
            self._append(self._progress, line)
        self._append(self._record, line, most=_MOST_BYTES)

    def before(self) -> dict[int, dict[str, Any]]:
        """The newest record of each step, by step."""
        found: dict[int, dict[str, Any]] = {}
        for place in (self._older, self._record):
            try:
                lines = place.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                continue
            for line in lines:
                try:
                    record = json.loads(line)
                    found[int(record["step"])] = record
                except (ValueError, KeyError, TypeError):
                    continue  # the line that a kill cut off
        return found

    def ended(self, how: str, *, step: int, reason: str, is_saved: bool) -> None:
        """`finished` or `stopped`, for whoever starts the script again by hand."""
        text = json.dumps({"ended": how, "step": step, "reason": reason, "saved": is_saved})
        asked = f", as asked ({reason})" if reason else ""
        if is_saved:
            log.info("%s at step %d%s, saved", how, step, asked)
        else:
            advice = "what is on the disk is an older step: make room, and start it again"
            log.error("%s at step %d%s, NOT saved; %s", how, step, asked, advice)
        self._whole(self._record.with_name("ended.json"), text)

    def begun(self) -> None:
        """What the last process left of its end is true no longer."""
        self._record.with_name("ended.json").unlink(missing_ok=True)

    def _whole(self, place: Path, text: str) -> None:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            begun = place.with_name(f".{place.name}.tmp")
            begun.write_text(text + "\n", encoding="utf-8")
            os.replace(begun, place)
        except OSError as error:
            self._cannot(place, error)

    def _append(self, place: Path, line: bytes, *, most: Optional[int] = None) -> None:
        try:
            handle = self._handles.get(place)
            if handle is None:
                place.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                handle = self._handles[place] = os.open(place, flags, 0o644)
                if most is not None and _lacks_an_end(place):
                    os.write(handle, b"\n")
            os.write(handle, line)
            if most is not None and os.fstat(handle).st_size > most:
                os.close(self._handles.pop(place))
                os.replace(place, self._older)
        except OSError as error:
            self._cannot(place, error)

    def _cannot(self, place: Path, error: OSError) -> None:
        if place not in self._refused:
            log.warning("%s cannot be written: %s; told once", place, error)
        self._refused.add(place)


def _lacks_an_end(place: Path) -> bool:
    with open(place, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"


def speak_up() -> None:
    """Shows our words on stderr where the script has set up no logging of its own."""
    if not log.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("rtj_trainer: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
