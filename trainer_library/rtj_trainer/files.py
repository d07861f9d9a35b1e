"""Saves as files of one directory: `rtj_step_<ten digits>.pt`, written by torch.save.

The sidecar's layout `torch` recognises and proves them. A file has its name only once it is whole
and on the disk; its zip's CRC-32 of each member is the checksum, which PyTorch itself does not
check on loading: `prove` does. Must never remove what bears another name.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import socket
import time
import zipfile
from pathlib import Path
from typing import Any, Optional

from rtj_trainer.imported import imported

_NAME = re.compile(r"^rtj_step_(\d{10,18})(\.pt)?$")
_BEGUN = re.compile(r"^\.rtj_step_.*\.(?P<host>[^.]+)\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp$")
_MARKER = ".metadata"
# The file is there, and this process may or can not read it now: no word on what is in it.
_CANNOT_BE_ASKED = frozenset({errno.ESTALE, errno.EACCES, errno.EPERM})
_CANNOT_SYNC_DIRECTORIES = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_SECONDS_OF_ITS_OWN, _SECONDS_OF_ANOTHERS = 60.0, 3600.0


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
    # Process numbers alone are the same in every container.
    whose = f"{_host()}.{os.getpid()}.{secrets.token_hex(4)}"
    begun = path.with_name(f".{path.name}.{whose}.tmp")
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
    """A new name in it survives a loss of power, where the filesystem can promise it (some of
    FUSE and CIFS refuse it for directories)."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_DIRECTORIES:
            raise
    finally:
        os.close(handle)


def prove(path: Path) -> None:
    """Reads every byte against its CRC-32. Raises NotWhole, OSError where it cannot be asked."""
    _prove(path, called=path.name)


def prove_part(path: Path, *, offset: int, length: int) -> None:
    """The same of so many bytes of a file, where a file of torch.save lies in them."""
    called = f"{path.parent.name}/{path.name} at byte {offset}"
    with open(path, "rb") as file:
        file.seek(offset)
        content = file.read(length)
    if len(content) != length:
        raise NotWhole(f"{called} is cut off")
    _prove(io.BytesIO(content), called=called)


def _prove(content: Any, *, called: str) -> None:
    try:
        with zipfile.ZipFile(content) as archive:
            damaged = archive.testzip()
    except MemoryError:
        raise
    except Exception as error:
        # A bit of the zip's directory makes it a zip of another kind: NotImplementedError,
        # RuntimeError (encrypted), zlib.error and more.
        if isinstance(error, OSError) and error.errno in _CANNOT_BE_ASKED:
            raise
        raise NotWhole(f"{called} is no whole file of torch.save: {error}") from None
    if damaged is not None:
        raise NotWhole(f"{called} is damaged: {damaged} is not what was written")


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
    except (RuntimeError, EOFError) as error:
        # Its bytes are those that were written, where PyTorch looks for them they are not.
        raise NotWhole(f"{path.name} is no whole file of torch.save: {error}") from None
    except Exception as error:
        if trusted or type(error).__name__ != "UnpicklingError":
            raise
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{path.name} holds objects that can only be loaded by executing them ({reason}). "
            "If you trust it: Run(..., trusted=True)"
        ) from None


def remove_older(
    directory: Path, *, newest: int, keep: int, spare: Optional[Path], by_mark: bool = True
) -> list[Path]:
    """Removes all but the newest `keep` finished saves up to step `newest`, and never `spare`.

    A sharded one that did not finish counts for nothing, and is removed too; not `by_mark`, every
    one counts: in a directory that only one machine sees no sharded save is marked but rank 0's.
    """
    older = [path for step, path in saves_in(directory) if step <= newest]
    finished = [path for path in older if not by_mark or is_finished(path)]
    stay = finished[-keep:] if keep else []
    gone = [path for path in older if path not in stay and path != spare]
    for path in gone:
        _remove(path)
    return gone


def is_finished(path: Path) -> bool:
    """It bears the mark of the end: of a file its name, of a directory `.metadata`."""
    return not path.is_dir() or (path / _MARKER).is_file()


def unmark(path: Path) -> None:
    """A sharded save that is about to be written over is finished no longer. Raises OSError."""
    if (path / _MARKER).exists():
        (path / _MARKER).unlink()
        sync_directory(path)


def remove_begun(directory: Path) -> None:
    """What a killed process had begun to write: of this host where no such process lives, of
    another where it was not written to for an hour. A save in flight is nobody's to remove."""
    for path in directory.glob(".rtj_step_*.tmp"):
        with contextlib.suppress(OSError):
            found = _BEGUN.match(path.name)
            is_own = found is not None and found["host"] == _host()
            is_dead = is_own and found is not None and not _lives(int(found["pid"]))
            least = _SECONDS_OF_ITS_OWN if is_dead else _SECONDS_OF_ANOTHERS
            if time.time() - path.stat().st_mtime > least:
                path.unlink()


def _host() -> str:
    return re.sub(r"[^\w-]", "-", socket.gethostname())[:64] or "host"


def _lives(pid: int) -> bool:
    if pid == os.getpid():
        return False  # a restarted container has the same numbers; nothing of this one is as old
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(path: Path) -> None:
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    # The marker first: what is half removed must not look whole.
    (path / _MARKER).unlink(missing_ok=True)
    for entry in path.iterdir():
        entry.unlink(missing_ok=True)
    path.rmdir()
