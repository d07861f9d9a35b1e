"""`<path>/.rtj/fence`: whose attempt may write a checkpoint directory that several nodes reach.

Whoever touches the directory writes its attempt there before anything is chosen; every sidecar
that has the volume mounted reads it again and again and ends its own trainer when it was overtaken
(`selffence`). File operations and pure judgement only. Every call may hang for as long as the file
server does: run them through `bounded`.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from pydantic import ValidationError
from rtj_api import contract
from rtj_api.wire import DirectoryOwner

from rtj_sidecar.stores.local import fsync_directory

T = TypeVar("T")

_TRIES_STALE = 3


def fence_path(directory: Path) -> Path:
    return directory / contract.HIDDEN_DIR / contract.FILE_FENCE


def read_fence(directory: Path) -> DirectoryOwner | None:
    """What stands there, None where nobody has written. Raises OSError, also for a torn file.

    Opened anew each time: NFS looks at the server then (close-to-open), whatever it has cached. A
    file that was replaced since the last look may give ESTALE once.
    """
    path = fence_path(directory)
    for left in reversed(range(_TRIES_STALE)):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            os.stat(directory)  # a directory that is gone is no directory without a fence
            return None
        except OSError as error:
            if error.errno == errno.ESTALE and left:
                continue
            raise
        try:
            return DirectoryOwner.model_validate_json(text)
        except ValidationError as error:
            raise OSError(errno.EIO, f"cannot be understood: {error.errors()[0]['msg']}") from error
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def write_fence(directory: Path, owner: DirectoryOwner) -> None:
    """Write whole, fsync, rename, fsync the directory, read again. Raises OSError.

    The temporary name is nobody else's: process ids repeat from pod to pod.
    """
    path = fence_path(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.fchmod(descriptor, 0o644)  # whatever the umask: other pods must read it
            os.write(descriptor, owner.dump_json().encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)
    there = read_fence(directory)
    if there != owner:
        raise OSError(errno.EBUSY, "another sidecar wrote it at the same time")


@dataclass(frozen=True, slots=True)
class Self:
    """Who reads, and the attempt that its directive names."""

    cluster_uid: str
    job_uid: str
    attempt: int

    def owns(self, owner: DirectoryOwner) -> bool:
        return (owner.cluster_uid, owner.job_uid) == (self.cluster_uid, self.job_uid)


def overtaken_by(owner: DirectoryOwner | None, *, me: Self) -> str | None:
    """Why this pod's trainer may not write any more, or None."""
    if owner is None:
        return None
    if not me.owns(owner):
        # A job that is complete writes nothing; one that runs has taken the directory over.
        return None if owner.released else f"job {owner.job or owner.job_uid}"
    if owner.attempt > me.attempt:
        return f"attempt {owner.attempt} of this job"
    return None


@dataclass(frozen=True, slots=True)
class Free:
    """The directory may be claimed. `followed`: the other job that held it last and may still
    have pods that write, by permission."""

    followed: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Another job has it and nobody said that it has ended: `<clusterUID>/<jobUID>`."""

    owner: str
    job: str


@dataclass(frozen=True, slots=True)
class Passed:
    """A later attempt of this very job has it: whoever asks is a zombie."""

    attempt: int


def claimable(owner: DirectoryOwner | None, *, me: Self, may_claim: bool) -> Free | Held | Passed:
    """Whether the directory may be claimed for `me.attempt`."""
    if owner is None:
        return Free()
    if me.owns(owner):
        return Passed(owner.attempt) if owner.attempt > me.attempt else Free()
    if owner.released:
        return Free()
    name = f"{owner.cluster_uid}/{owner.job_uid}"
    return Free(followed=name) if may_claim else Held(name, owner.job or name)


class Hangs(OSError):
    """The call has not returned within its limit, and goes on in its thread."""


class Bounded(Generic[T]):
    """Runs a call that may never return, one at a time, each in a thread that nobody waits for.

    A process in uninterruptible sleep cannot be interrupted, only left alone.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: SimpleQueue[tuple[T | None, OSError | None]] | None = None

    def call(self, work: Callable[[], T], *, seconds: float) -> T:
        """The call's answer. Raises OSError as the call does, Hangs when it takes longer.

        While an older call has not returned, that one is waited for and its answer dropped.
        """
        if self._running is not None:
            self._answer(self._running, seconds)
        answer: SimpleQueue[tuple[T | None, OSError | None]] = SimpleQueue()

        def run() -> None:
            try:
                answer.put((work(), None))
            except OSError as error:
                answer.put((None, error))
            except Exception as error:
                answer.put((None, OSError(errno.EIO, f"{type(error).__name__}: {error}")))

        self._running = answer
        threading.Thread(target=run, name=self._name, daemon=True).start()
        value, error = self._answer(answer, seconds)
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def _answer(
        self, waiting: SimpleQueue[tuple[T | None, OSError | None]], seconds: float
    ) -> tuple[T | None, OSError | None]:
        try:
            found = waiting.get(timeout=seconds)
        except Empty:
            raise Hangs(errno.ETIMEDOUT, f"no answer for {seconds:.0f} s") from None
        self._running = None
        return found
