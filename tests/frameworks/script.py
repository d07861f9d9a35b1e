"""What every `make_<family>.py` shares: how it is called, and what it tells the test.

    make_<family>.py save  CASE DIRECTORY    trains until three saves are made, and ends
    make_<family>.py train CASE DIRECTORY    trains and saves until it is killed
    make_<family>.py resume CASE DIRECTORY   resumes the framework's own way, and ends

A DIRECTORY with `{rank}` in it is another one for each rank, as on pods with disks of their own.

Each line of JSON with an `event` is for the test: `saving` (before the first byte of a save, with
its step and a digest of the tensors), `saved` (the framework says that it is done), `resumed`.
A script runs in its family's own virtual environment; it must never import this project, and must
save and resume as a user of the framework would.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAVES = 3


@dataclass(frozen=True)
class Case:
    """`train(directory, saves)`: None for ever. `resume(directory)` calls `resumed`."""

    train: Callable[[Path, int | None], None]
    resume: Callable[[Path], None]


def digest(tensors: Mapping[str, Any]) -> str:
    """SHA-256 over name, type, shape and bytes of each array, by name."""
    import numpy

    total = hashlib.sha256()
    for name in sorted(tensors):
        array = numpy.ascontiguousarray(tensors[name])
        total.update(f"{name} {array.dtype} {array.shape}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """The tensors of nested dicts and lists of torch, as arrays; numbers as well."""
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(str(at), item) for at, item in enumerate(value)]
    elif hasattr(value, "detach"):
        return {prefix: value.detach().cpu().contiguous().numpy()}
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return {prefix: value}
    else:
        return {}
    found: dict[str, Any] = {}
    for key, item in items:
        found |= flat(item, f"{prefix}/{key}")
    return found


def saving(step: int, tensors: Mapping[str, Any]) -> None:
    _emit(event="saving", step=step, digest=digest(tensors))


def saved(step: int) -> None:
    """And trains on for a while, where the test asks for that."""
    _emit(event="saved", step=step)
    time.sleep(float(os.environ.get("SECONDS_BETWEEN_SAVES") or 0))


def resumed(step: int | None, tensors: Mapping[str, Any]) -> None:
    """`step` None: it found nothing to resume from."""
    _emit(event="resumed", step=step, digest=digest(tensors) if step is not None else "")


def main(cases: Mapping[str, Case]) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    what, name, directory = sys.argv[1:4]
    case = cases[name]
    # Only rank 0 is begun without a rank in its environment: see `ranks`.
    directory = directory.replace("{rank}", os.environ.get("RANK", "0"))
    if what == "resume":
        case.resume(Path(directory))
    else:
        case.train(Path(directory), SAVES if what == "save" else None)


def _emit(**fields: Any) -> None:
    # One write: what the framework prints must not get between.
    os.write(1, f"\n{json.dumps(fields)}\n".encode())
