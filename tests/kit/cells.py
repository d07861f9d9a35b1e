"""The table "a fault in every phase of an attempt, in every part": its cells and what each ends in.

Read by the test that makes each cell happen and by the page that shows them, so neither can say
what the other does not. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    RECORDED = "recorded"
    PREPARE = "prepare"
    CHOOSE = "choose"
    RESTORE = "restore"
    GO = "go"
    FIRST_SAVE = "first-save"
    COMMIT = "commit"


class Part(StrEnum):
    OPERATOR = "operator"
    SIDECAR = "sidecar"
    SUPERVISOR = "supervisor"
    POD = "pod"
    STORE = "store"


class Ending(StrEnum):
    """How the job gets from the fault to its end; the end itself is always the same."""

    KEPT = "kept"
    AGAIN = "again"
    COUNTED = "counted"
    HELD = "held"


TEST = "tests/contract/operator/test_fault_matrix.py"

# (in the table, what it means)
ENDINGS: dict[Ending, tuple[str, str]] = {
    Ending.KEPT: (
        "goes on",
        "The same attempt goes on: what died comes back or is made anew, reads its journal or the "
        "recorded status, and takes the next step. Nothing is counted.",
    ),
    Ending.AGAIN: (
        "begins anew",
        "A new attempt, free of charge: no trainer had been started in this one.",
    ),
    Ending.COUNTED: (
        "restarts",
        "A new attempt from the newest save that all ranks can load, counted as a start and a "
        "restart. The user's "
        "budget is charged only where the trainer's own container died.",
    ),
    Ending.HELD: (
        "waits",
        "The job is `Held` with `StoreUnreachable`, for which saves there are is unknown; once the "
        "store answers, a new attempt begins by itself, free of charge.",
    ),
}
PHASES: dict[Phase, str] = {
    Phase.RECORDED: "the attempt stands in `status` and none of its pods has been made",
    Phase.PREPARE: "rank 0's sidecar is about to claim the fence",
    Phase.CHOOSE: "all ranks are prepared and the choice is about to be written",
    Phase.RESTORE: "the first bytes of the chosen save are on their way from the store",
    Phase.GO: "rank 0's trainer has begun, and rank 1 was not told to go",
    Phase.FIRST_SAVE: "the attempt's first save is finished and pinned, and is about to be sent",
    Phase.COMMIT: "all of it is in the store and its manifest is about to be written",
}
# (in the table, what is done to it)
PARTS: dict[Part, tuple[str, str]] = {
    Part.OPERATOR: ("the operator", "killed with SIGKILL, and started again"),
    Part.SIDECAR: ("a sidecar", "rank 0's (recorded: rank 1's) is killed with SIGKILL"),
    Part.SUPERVISOR: (
        "a supervisor",
        "the same rank's is killed with SIGKILL, and its trainer with it, as by the kernel when "
        "the container is out of memory",
    ),
    Part.POD: ("a pod", "the same rank's is deleted with grace 0, by force"),
    Part.STORE: (
        "the store",
        "refuses every connection for 20 s, or until the attempt is given up or the job is held; "
        "at the commit it writes the manifest and its answer is lost first",
    ),
}

K, A, C, H = Ending.KEPT, Ending.AGAIN, Ending.COUNTED, Ending.HELD

# Columns as in Part.
TABLE: dict[Phase, tuple[Ending, Ending, Ending, Ending, Ending]] = {
    Phase.RECORDED: (K, K, K, A, H),
    Phase.PREPARE: (K, K, K, K, H),
    Phase.CHOOSE: (K, K, K, C, C),
    Phase.RESTORE: (K, K, K, C, C),
    Phase.GO: (K, K, C, C, K),
    Phase.FIRST_SAVE: (K, K, C, C, K),
    Phase.COMMIT: (K, K, C, C, K),
}


@dataclass(frozen=True)
class Cell:
    phase: Phase
    part: Part

    @property
    def id(self) -> str:
        return f"{self.phase}-{self.part}"

    @property
    def ending(self) -> Ending:
        return TABLE[self.phase][list(Part).index(self.part)]


CELLS = tuple(Cell(phase, part) for phase in Phase for part in Part)

# What `make test` takes of each column: one cell of each ending, the first and the last moment of
# what it means. The others end as their neighbours do, and are for `make test-long`.
SHORT: dict[Part, tuple[Phase, ...]] = {
    Part.OPERATOR: (Phase.CHOOSE, Phase.GO, Phase.COMMIT),
    Part.SIDECAR: (Phase.PREPARE, Phase.RESTORE, Phase.FIRST_SAVE, Phase.COMMIT),
    Part.SUPERVISOR: (Phase.RESTORE, Phase.GO, Phase.COMMIT),
    Part.POD: (Phase.RECORDED, Phase.PREPARE, Phase.RESTORE, Phase.GO, Phase.COMMIT),
    Part.STORE: (Phase.RECORDED, Phase.CHOOSE, Phase.FIRST_SAVE, Phase.COMMIT),
}


def is_long(cell: Cell) -> bool:
    return cell.phase not in SHORT[cell.part]
