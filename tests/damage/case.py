"""What one case of the damage corpus says: a tree, one damage, what is seen, what is resumed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kit.damage import Damage
from rtj_sidecar.checkpoints.types import Reason, Status

from damage.trees import NEW, OLD, TREES, Tree


class Pick(StrEnum):
    """Which save a run begins from."""

    OLDER = "the older save"
    NEWER = "the damaged save itself"
    NONE = "none: the job is held"


class Kind(StrEnum):
    """The chapters of the generated page."""

    KILLED = "The trainer was killed while it saved"
    ROTATED = "Killed while an old save was being deleted"
    FULL = "The disk was full, or had become read-only"
    DURING = "Replaced, cut or deleted while it is looked at"
    DISK = "The disk lost or changed bytes"
    SET = "Files of the set are not there, or are another save's"
    ORDER = "Numbers, names and times that mislead"
    POINTER = "Pointers that mislead"
    PLACE = "Something else stands where a file should"
    HOSTILE = "Files made to harm"


@dataclass(frozen=True, slots=True)
class Case:
    """`damage` gets the directory of the run, which holds the two saves of `tree`.

    `status` and `reason` are those of the save `key` (the newer one unless named; None: it must not
    be a save at all).
    """

    name: str
    kind: Kind
    tree: str
    damage: Damage
    status: Status | None = Status.TORN
    reason: Reason = Reason.OK
    resumed: Pick = Pick.OLDER
    key: str | None = None
    report: str = ""
    """The public report of it, `owner/repository#number`."""
    during: str = ""
    """Path of the file whose first opening by the look causes the damage; else it comes before."""
    takes: str | None = None
    """Root key of the save that is resumed from, where the damage gives the saves other names."""

    @property
    def of(self) -> Tree:
        return TREES[self.tree]

    @property
    def judged_key(self) -> str:
        return self.key if self.key is not None else self.of.key_of(NEW)

    @property
    def resumed_key(self) -> str | None:
        if self.takes is not None:
            return self.takes
        number = {Pick.OLDER: OLD, Pick.NEWER: NEW}.get(self.resumed)
        return None if number is None else self.of.key_of(number)


def fine(name: str, kind: Kind, tree: str, damage: Damage, *, report: str = "") -> Case:
    """A damage that harms no save: the newer one is resumed from all the same."""
    verified = Status.VERIFIED
    return Case(name, kind, tree, damage, verified, Reason.OK, Pick.NEWER, report=report)
