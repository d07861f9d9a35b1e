"""Reads files below the checkpoint directory for the layouts, each state of a file once.

Holds the caches, so a scan of an unchanged directory reads nothing. Never writes, never follows a
link, never executes.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path

from rtj_sidecar.checkpoints.formats.base import (
    CHUNK,
    DEFAULT_CAPS,
    CapError,
    Caps,
    FileCheck,
    MalformedError,
    Window,
)
from rtj_sidecar.checkpoints.paths import UnsafePathError, open_below
from rtj_sidecar.checkpoints.types import FileEntry, Reason, Stamp

_ALIKE = 1024  # different answers that are kept at hand for an equal one
_LONG = 4096  # characters of facts that no other file is likely to have


class ChangedError(OSError):
    """The file on disk is no longer the one that the entry describes."""


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


class StampCache:
    """A bounded map from a file's state to answers about it, least recently used out first.

    Of a hundred thousand files most answers are alike, and an answer is never changed: those that
    are equal are kept once.
    """

    def __init__(self, *, limit: int = 200_000) -> None:
        self._limit = limit
        self._answers: OrderedDict[Stamp, tuple[tuple[Hashable, object], ...]] = OrderedDict()
        self._alike: dict[tuple[object, ...], FileCheck] = {}

    def get(self, stamp: Stamp, question: Hashable) -> object | None:
        answers = self._answers.get(stamp)
        if answers is None:
            return None
        self._answers.move_to_end(stamp)
        return next((answer for asked, answer in answers if asked == question), None)

    def put(self, stamp: Stamp, question: Hashable, answer: object) -> None:
        others = (each for each in self._answers.get(stamp, ()) if each[0] != question)
        self._set(stamp, (*others, (question, self._once(answer))))

    def carry(self, *, old: Stamp, new: Stamp) -> None:
        """Keep the answers after an operation of our own that moved only the ctime.

        Ignored unless device, inode, size and mtime are equal.
        """
        same = (old.device, old.inode, old.size, old.mtime_ns) == (
            new.device,
            new.inode,
            new.size,
            new.mtime_ns,
        )
        if same and (answers := self._answers.get(old)) is not None:
            known = {asked for asked, _ in answers}
            more = (each for each in self._answers.get(new, ()) if each[0] not in known)
            self._set(new, (*answers, *more))

    def _set(self, stamp: Stamp, answers: tuple[tuple[Hashable, object], ...]) -> None:
        self._answers[stamp] = answers
        self._answers.move_to_end(stamp)
        while len(self._answers) > self._limit:
            self._answers.popitem(last=False)

    def _once(self, answer: object) -> object:
        if not isinstance(answer, FileCheck):
            return answer
        facts = repr(answer.facts)
        if len(facts) > _LONG:
            return answer
        told = (answer.format, answer.passed, answer.detail, answer.reason, facts)
        if len(self._alike) >= _ALIKE:
            self._alike.clear()
        return self._alike.setdefault(told, answer)


class Reader:
    """Safe, cached reading below one root directory."""

    def __init__(
        self, root: Path, *, cache: StampCache | None = None, caps: Caps = DEFAULT_CAPS
    ) -> None:
        self.root = root
        self.cache = StampCache() if cache is None else cache
        self.caps = caps
        self.memo: dict[str, object] = {}
        """The last verdict on each save, by its root key; kept here for `validate` alone."""
        self._buffer = bytearray(CHUNK)

    def ask(
        self,
        entry: FileEntry,
        question: Hashable,
        answer: Callable[[Window, bytearray], FileCheck],
    ) -> FileCheck:
        """`answer` on the open file, cached by the file's state and `question`.

        A malformed file becomes a failed FileCheck. Raises ChangedError where the file is no
        longer as `entry` says (before or after reading), OSError, UnsafePathError.
        """
        known = self.cache.get(entry.stamp, question)
        if isinstance(known, FileCheck):
            return known
        with open_below(self.root, entry.path) as descriptor:
            self._same(descriptor, entry)
            try:
                found = answer(Window(descriptor, 0, entry.size), self._buffer)
            except CapError as error:
                found = FileCheck("unread", None, f"{entry.path}: {error}: not checked")
            except MalformedError as error:
                found = FileCheck("broken", False, f"{entry.path}: {error}", error.reason)
            self._same(descriptor, entry)
        self.cache.put(entry.stamp, question, found)
        return found

    def small(self, entry: FileEntry, *, limit: int = 65536) -> bytes:
        """The whole content of a small file. Raises ChangedError, OSError, UnsafePathError."""
        if entry.size > limit:
            raise UnsafePathError(f"{entry.path!r} is larger than {limit} bytes")
        with open_below(self.root, entry.path) as descriptor:
            content = os.pread(descriptor, limit + 1, 0)
            self._same(descriptor, entry)
        return content

    def sha256(self, entry: FileEntry) -> str:
        """SHA-256 in lower-case hex, hashed at most once for each state of the file."""
        known = self.cache.get(entry.stamp, "sha256")
        if isinstance(known, str):
            return known
        digest = hashlib.sha256()
        with open_below(self.root, entry.path) as descriptor:
            self._same(descriptor, entry)
            offset, view = 0, memoryview(self._buffer)
            while count := os.preadv(descriptor, [view], offset):
                digest.update(view[:count])
                offset += count
            self._same(descriptor, entry)
        self.cache.put(entry.stamp, "sha256", digest.hexdigest())
        return digest.hexdigest()

    def learn_sha256(self, stamp: Stamp, digest: str) -> None:
        """Take over a hash that someone computed while sending the file, so that it is not read
        again; `stamp` is the state that the bytes had."""
        self.cache.put(stamp, "sha256", digest)

    @staticmethod
    def _same(descriptor: int, entry: FileEntry) -> None:
        if stamp_of(os.fstat(descriptor)) != entry.stamp:
            raise ChangedError(f"{entry.path} changed while it was looked at")


def unreadable(error: OSError | UnsafePathError) -> tuple[Reason, str]:
    """The reason and message for a file that could not be read."""
    if isinstance(error, UnsafePathError):
        return Reason.UNSAFE_ENTRY, str(error)
    if isinstance(error, FileNotFoundError | ChangedError):
        return Reason.GONE, f"gone or replaced while it was looked at: {error}"
    return Reason.UNREADABLE, str(error)
