"""What the supervisor of a pod, or `rtj run`, tells a trainer by environment and files.

The names are those of the project's contract and never change. Alone nothing of it is set. Must
never guess: a variable that cannot be read is a ValueError that names it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional


@dataclass(frozen=True)
class Told:
    """`resume` is None where nobody says what to resume from, "" where it is to begin at step 0."""

    directory: Optional[Path] = None
    resume: Optional[str] = None
    resume_step: Optional[int] = None
    progress_file: Optional[Path] = None
    stop_file: Optional[Path] = None
    interval_seconds: Optional[float] = None
    interval_file: Optional[Path] = None
    accumulation: Optional[int] = None
    learning_rate_scale: Optional[float] = None
    attempt: Optional[int] = None


@dataclass(frozen=True)
class StopStep:
    """Save when `step` is done, and end with 0. `reason` is for people."""

    step: int
    reason: str


def told(environment: Mapping[str, str]) -> Told:
    """Reads the variables of docs/run-a-job.md. Raises ValueError for one that is no number."""

    def number(name: str) -> Optional[float]:
        text = environment.get(name, "")
        try:
            return float(text) if text else None
        except ValueError:
            raise ValueError(f"{name} is {text!r}, which is no number: unset it") from None

    def whole(name: str) -> Optional[int]:
        value = number(name)
        return None if value is None else int(value)

    def place(name: str) -> Optional[Path]:
        text = environment.get(name, "")
        return Path(text) if text else None

    return Told(
        directory=place("RTJ_CHECKPOINT_DIR"),
        resume=environment.get("RTJ_RESUME_CHECKPOINT"),
        resume_step=whole("RTJ_RESUME_STEP"),
        progress_file=place("RTJ_PROGRESS_FILE"),
        stop_file=place("RTJ_STOP_FILE"),
        interval_seconds=number("RTJ_CHECKPOINT_INTERVAL_SECONDS"),
        interval_file=place("RTJ_CHECKPOINT_INTERVAL_FILE"),
        accumulation=whole("RTJ_GRADIENT_ACCUMULATION"),
        learning_rate_scale=number("RTJ_LEARNING_RATE_SCALE"),
        attempt=whole("RTJ_ATTEMPT"),
    )


def read_stop(place: Optional[Path]) -> Optional[StopStep]:
    """The agreed stop step, None while nobody asked. The file is written whole, and renamed."""
    if place is None:
        return None
    try:
        said = json.loads(place.read_text(encoding="utf-8"))
        return StopStep(step=int(said["step"]), reason=str(said.get("reason", "")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        # A stop that cannot be read is asked for by a later signal, too.
        return None


def read_interval(at: Told) -> Optional[float]:
    """Seconds between saves as advised now, else at the start, else None."""
    if at.interval_file is not None:
        try:
            return float(at.interval_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            pass
    return at.interval_seconds


def is_first_of_machine() -> bool:
    """Of several processes of a pod one tells progress: torchrun's local rank 0."""
    return os.environ.get("LOCAL_RANK", "0") in ("", "0")
