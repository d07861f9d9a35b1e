"""Compare and swap on HDFS, which has none: "write only if the file is still the one I read".

What HDFS has is a rename that fails where its target is, decided by the name node alone, and a
number for each inode that moves with a rename and never comes again. So:

* The file with number f0 is replaced by the file t, whole and under a hidden name, once a *claim*
  named after f0 holds t's name. Claims are made by that rename: of all who read f0, one makes it.
* From then on t is the content. Whoever meets the claim (its writer, or any reader) renames t over
  the file. t's name is its own, so that this happens once, however many try.
* A claim on f0 says something only while the file has the number f0. Whoever made it too late sees
  afterwards another number and its own t still under its hidden name: it has lost.
* A claim may be removed once the file's number is another one.

A writer that dies at any point leaves the file as it was or as it wanted it, and the next one goes
on. Must never act on a claim whose file's number was not read again after the claim: it may be that
of a late one.
"""

from __future__ import annotations

import contextlib
import posixpath
from typing import Protocol

from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import Absent, ConditionFailed
from rtj_sidecar.stores.base import StoreProblem

HIDDEN = ".rtj-store-"  # names that begin so are ours and no objects
_CLAIM = f"{HIDDEN}claim-"
# Each is one more writer that came in between.
_TRIES = 30


class _Files(Protocol):
    def write_beside(self, path: str, data: bytes) -> str: ...

    def read(self, path: str) -> bytes: ...

    def number(self, path: str) -> str: ...

    def rename(self, path: str, to: str, *, over: bool) -> None: ...

    def remove(self, path: str) -> None: ...


class Swap:
    def __init__(self, files: _Files) -> None:
        self._files = files

    @staticmethod
    def claim_of(path: str, number: str) -> str:
        return posixpath.join(posixpath.dirname(path), f"{_CLAIM}{number}")

    def settled(self, path: str) -> str:
        """The file's number, after every claim on it was carried out. Raises Absent."""
        for _ in range(_TRIES):
            number = self._files.number(path)
            if not self._carry_out(path, number):
                return number
        claim = self.claim_of(path, number)
        raise StoreProblem(
            Reason.RUN_DAMAGED,
            f"{path}: {claim} names a file that is gone; was it removed by hand? Remove {claim}, "
            "which leaves what was before",
        )

    def replace(self, path: str, written: str, *, expected: str) -> None:
        """Put the hidden file `written` in the place of the file of number `expected`.

        Raises ConditionFailed or Absent, and `written` is gone then. After any other error it
        must be left: it may be the content already.
        """
        try:
            if self.settled(path) != expected:
                raise ConditionFailed(path)
        except (Absent, ConditionFailed):
            self._files.remove(written)
            raise
        claim = self.claim_of(path, expected)
        proposed = self._files.write_beside(path, posixpath.basename(written).encode())
        try:
            self._files.rename(proposed, claim, over=False)
        except ConditionFailed:
            # Another's, or our own, where a client asked twice for one rename.
            self._files.remove(proposed)
            self._carry_out(path, expected)
        else:
            if self._files.number(path) == expected:
                # Where it has gone, another has carried it out, and it may be replaced by now.
                with contextlib.suppress(Absent):
                    self._files.rename(written, path, over=True)
                self._files.remove(claim)
                return
        # Carried out, or too late: our file's own name tells.
        if self._is_there(written):
            if self._names(claim, written):
                self._files.remove(claim)
            self._files.remove(written)
            raise ConditionFailed(path)

    def _carry_out(self, path: str, number: str) -> bool:
        """Whether there was a claim on the file with that number."""
        claim = self.claim_of(path, number)
        if (name := self._read(claim)) is None:
            return False
        # Only now: a claim that was read while the file had its number is the one that counts.
        if self._files.number(path) == number:
            with contextlib.suppress(Absent):
                self._files.rename(posixpath.join(posixpath.dirname(path), name), path, over=True)
        if self._files.number(path) != number:
            self._files.remove(claim)
        return True

    def _names(self, claim: str, written: str) -> bool:
        return self._read(claim) == posixpath.basename(written)

    def _read(self, claim: str) -> str | None:
        try:
            return self._files.read(claim).decode()
        except Absent:
            return None

    def _is_there(self, path: str) -> bool:
        try:
            self._files.number(path)
        except Absent:
            return False
        return True
