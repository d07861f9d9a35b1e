"""Saves as files of one directory: `rtj_step_<ten digits>.pt`, written by torch.save.

The sidecar's layout `torch` recognises and proves them. A file has its name only once it is whole
and on the disk; its zip's CRC-32 of each member is the checksum, which PyTorch itself does not
check on loading: `prove` does. Must never remove what bears another name.
"""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path
from typing import Any, Optional

from rtj_trainer.imported import imported

_NAME = re.compile(r"^rtj_step_(\d{10,18})(\.pt)?$")


class NotWhole(ValueError):
    """A save that is torn or damaged; the message says where."""


def path_of(directory: Path, step: int, *, is_sharded: bool = False) -> Path:
    """Where the save of that step lies; a sharded one is a directory."""
    return directory / f"rtj_step_{step:010d}{'' if is_sharded else '.pt'}"


def saves_in(directory: Path) -> list[tuple[int, Path]]:
    """(step, path) of everything that is named like a save, oldest first; [] without directory."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    found = [(int(m.group(1)), directory / name) for name in names if (m := _NAME.match(name))]
    return sorted(found)


def write(path: Path, state: Any) -> int:
    """Writes the state under a temporary name, has it on the disk, and renames it. Returns bytes.

    Raises OSError; what was begun is then removed, and what had the name is as it was.
    """
    torch = imported("torch")
    if torch is None:
        raise RuntimeError("a save is written by PyTorch, which the script has not imported")
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(begun, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        os.replace(begun, path)
        sync_directory(path.parent)
    except BaseException:
        begun.unlink(missing_ok=True)
        raise
    return size


def sync_directory(directory: Path) -> None:
    """A new name in it survives a loss of power."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prove(path: Path) -> None:
    """Reads every byte against its CRC-32. Raises NotWhole."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise NotWhole(f"{path.name} is no whole file of torch.save: {error}") from None
    if damaged is not None:
        raise NotWhole(f"{path.name} is damaged: {damaged} is not what was written")


def read(path: Path, *, trusted: bool) -> Any:
    """The state in a proved save. Without `trusted` nothing in it is executed.

    Raises NotWhole for a damaged one, ValueError for one that needs to be executed.
    """
    torch = imported("torch")
    if torch is None:
        raise RuntimeError("a save is read by PyTorch, which the script has not imported")
    prove(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=not trusted)
    except Exception as error:
        if trusted or type(error).__name__ != "UnpicklingError":
            raise
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{path.name} holds objects that can only be loaded by executing them ({reason}). "
            "If you trust it: Run(..., trusted=True)"
        ) from None


def remove_older(directory: Path, *, newest: int, keep: int, spare: Optional[Path]) -> list[Path]:
    """Removes all but the newest `keep` saves up to step `newest`, and never `spare`."""
    older = [(step, path) for step, path in saves_in(directory) if step <= newest]
    gone = []
    for _, path in older[: max(0, len(older) - keep)]:
        if spare is None or path != spare:
            _remove(path)
            gone.append(path)
    return gone


def remove_begun(directory: Path) -> None:
    """What a killed process had begun to write."""
    for path in directory.glob(".rtj_step_*.tmp"):
        path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    # The marker first: what is half removed must not look whole.
    (path / ".metadata").unlink(missing_ok=True)
    for entry in path.iterdir():
        entry.unlink(missing_ok=True)
    path.rmdir()
