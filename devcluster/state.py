"""What is remembered of clusters between commands: one directory each, under /var/lib/devcluster.

A record is written whole and renamed. Locks are taken on the directories themselves, so that no
lock file is left behind.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from devcluster.layout import SLOTS

FORMAT = 1
RECORD = "cluster.json"


class StateError(RuntimeError):
    """The recorded state cannot be used; the message says what to do."""


@dataclass(frozen=True)
class Spec:
    """What `up` was asked for, and the slot it was given."""

    name: str
    slot: int
    nodes: int
    gpus: int
    audit: bool = False
    apiserver_args: tuple[str, ...] = ()
    kcm_args: tuple[str, ...] = ()
    format: int = FORMAT


def read(directory: Path) -> Spec | None:
    """The record in `directory`, None if there is none; StateError if it cannot be read."""
    try:
        data = json.loads((directory / RECORD).read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, this version reads {FORMAT}")
        for key in ("apiserver_args", "kcm_args"):
            data[key] = tuple(data[key])
        return Spec(**data)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{directory / RECORD} cannot be read ({error}); "
            f"`python -m devcluster down --name {directory.name}` clears the cluster away"
        ) from error


def write(directory: Path, spec: Spec) -> None:
    temporary = directory / f"{RECORD}.tmp"
    temporary.write_text(json.dumps(asdict(spec), indent=1), encoding="utf-8")
    temporary.replace(directory / RECORD)


def names(root: Path) -> list[str]:
    if not root.is_dir():
        return []
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def free_slot(root: Path, *, in_use: set[int]) -> int:
    """The lowest slot that neither a record nor an address of this machine uses."""
    taken = set(in_use)
    for name in names(root):
        try:
            spec = read(root / name)
        except StateError:
            continue  # its addresses, if it has any, are in `in_use`
        if spec is not None:
            taken.add(spec.slot)
    for slot in range(SLOTS):
        if slot not in taken:
            return slot
    raise StateError(f"all {SLOTS} address ranges are in use; `down` a cluster you do not need")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the only lock on a directory, making it if need be; waits for another holder."""
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except (FileExistsError, FileNotFoundError):
            if directory.exists() and not directory.is_dir():
                raise
            continue  # removed by a `down` between two of our looks at it
        fcntl.flock(handle, fcntl.LOCK_EX)
        # A `down` that held the lock may have removed the directory: then this is not it.
        try:
            same = os.path.samestat(os.fstat(handle), os.stat(directory))
        except FileNotFoundError:
            same = False
        if same:
            break
        os.close(handle)
    try:
        yield
    finally:
        os.close(handle)
