"""Who is missing in a collective operation, and what the operator makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from kit.observations import later, running, with_exit, with_report
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.rules import watchdog
from rtj_api.rules.flight import Call, Flight, Group, missing
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from unit.core.test_hangs import both

OP = "nccl:all_reduce"


def waits(seq: int, *, op: str = OP, sizes: str = "[[4]]", name: str = "0") -> Group:
    return Group(name=name, begun=seq, ended=seq - 1, open=Call(seq=seq, op=op, sizes=sizes))


def idle(seq: int, *, name: str = "0") -> Group:
    return Group(name=name, begun=seq, ended=seq)


def flights(*groups: Group | tuple[Group, ...]) -> dict[int, list[Flight]]:
    """One process a rank."""
    told = [g if isinstance(g, tuple) else (g,) for g in groups]
    return {rank: [Flight(process=rank, groups=g)] for rank, g in enumerate(told)}


CASES: dict[str, tuple[dict[int, list[Flight]], int | None, bool]] = {
    "one has not begun": (flights(waits(7), idle(6), waits(7)), 1, False),
    "one is several behind": (flights(waits(7), waits(7), idle(2)), 2, False),
    "the others have begun several": (
        flights(Group(name="0", begun=9, ended=6, open=Call(seq=7, op=OP)), waits(7), idle(6)),
        2,
        False,
    ),
    "a victim in one group waits in another": (
        flights(
            (waits(7, name="dp"), idle(3, name="tp")),
            (idle(6, name="dp"), waits(4, name="tp")),
            (idle(6, name="other"), idle(3, name="tp")),
        ),
        2,
        False,
    ),
    "another operation": (flights(waits(7), waits(7, op="nccl:broadcast"), waits(7)), 1, True),
    "another size": (flights(waits(7), waits(7), waits(7, sizes="[[5]]")), 2, True),
    "of two nobody can say": (flights(waits(7), waits(7, op="nccl:broadcast")), None, True),
}


@pytest.mark.parametrize("name", CASES)
def test_who_is_missing(name: str) -> None:
    told, rank, is_mismatch = CASES[name]
    found = missing(told)
    assert found is not None
    assert (found.rank, found.is_mismatch) == (rank, is_mismatch)
    assert "flight recorder" in found.why


NOBODY: dict[str, dict[int, list[Flight]]] = {
    "nothing is told": {},
    "nobody waits": flights(idle(6), idle(6), idle(5)),
    "all wait in the same": flights(waits(7), waits(7), waits(7)),
    "two have not begun": flights(waits(7), idle(6), idle(6)),
    "of one nothing is known": {0: [Flight(process=0, groups=[waits(7)])], 1: []},
    "sizes that may differ": flights(
        waits(7, op="nccl:all_to_all"), waits(7, op="nccl:all_to_all", sizes="[[9]]")
    ),
}


@pytest.mark.parametrize("name", NOBODY)
def test_nobody_is_blamed_without_a_word_against_them(name: str) -> None:
    assert missing(NOBODY[name]) is None


def test_two_processes_of_one_pod_are_one_rank() -> None:
    told = {
        0: [Flight(process=0, groups=[waits(7)]), Flight(process=1, groups=[waits(7)])],
        1: [Flight(process=2, groups=[idle(6)]), Flight(process=3, groups=[idle(6)])],
    }
    found = missing(told)
    assert found is not None
    assert found.rank == 1


# --- the watchdog's lines ---

OLD = (
    "[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=15173, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802710 milliseconds "
    "before timing out."
)
NEW = (
    "[rank0]:[E1012 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=12, NumelOut=12, "
    "Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)
STATUS = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0 Rank {0}] Received a dump signal "
    "due to a collective timeout from  rank 0 and we will try our best to dump the debug info. "
    "Last enqueued NCCL work: {1}, last completed NCCL work: {2}.This is most likely caused by"
)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (OLD, "process 1 waited for 1800 s in ALLREDUCE (number 15173)"),
        (NEW, "process 0 waited for 600 s in ALLREDUCE (number 4)"),
    ],
)
def test_the_watchdogs_line_is_told(line: str, text: str) -> None:
    found = watchdog.waited(["before", line, "after"])
    assert found is not None
    assert found.text == f"by NCCL's watchdog {text}"


@pytest.mark.parametrize(
    "line", ["", "SeqNum=4", "WorkNCCL(SeqNum=4, OpType=ALLREDUCE)", "Watchdog " + "(" * 100_000]
)
def test_other_lines_say_nothing(line: str) -> None:
    assert watchdog.waited([line]) is None


def test_lines_of_all_ranks_name_the_missing_one() -> None:
    told = {rank: watchdog.flights([STATUS.format(rank, 4, 3)]) for rank in (0, 2)}
    told[0] = watchdog.flights(
        [NEW.replace("[Rank 0]", "[PG ID 0 PG GUID 0 Rank 0]"), STATUS.format(0, 4, 3)]
    )
    told[1] = watchdog.flights([STATUS.format(1, 3, 3)])
    found = missing(told)
    assert found is not None
    assert found.rank == 1


# --- the operator ---


def told(observed: Observed, rank: int, *groups: Group) -> Observed:
    def change(report: wire.Report) -> wire.Report:
        views = [
            wire.FlightGroup(
                name=g.name,
                begun=g.begun,
                ended=g.ended,
                open=wire.CallView(seq=g.open.seq, op=g.open.op, sizes=g.open.sizes)
                if g.open is not None
                else None,
            )
            for g in groups
        ]
        view = wire.FlightView(process=rank, groups=views)
        return report.model_copy(update={"flights": [view]})

    return with_report(observed, rank, change)


def culprit(observed: Observed) -> Any:
    plan = decide(observed)
    assert plan.status is not None
    current = plan.status.current
    assert current is not None
    assert current.culprit is not None
    return current


@pytest.mark.parametrize("rank", [0, 1])
def test_a_hang_is_the_missing_ranks(rank: int) -> None:
    seen = both(running(), fell_at=990.0)
    seen = told(told(seen, rank, idle(6)), 1 - rank, waits(7))
    found = culprit(later(seen, 31))
    assert found.cause == Reason.TRAINER_HUNG
    assert found.culprit.rank == rank
    assert "number 7" in found.message


@pytest.mark.parametrize("rank", [0, 1])
def test_who_lost_patience_first_is_a_victim(rank: int) -> None:
    tail = [NEW.replace("Rank 0", f"Rank {1 - rank}")]
    seen = with_exit(running(), 1 - rank, exit_code=-6, signal=6, tail=tail)
    seen = told(told(seen, rank, idle(6)), 1 - rank, waits(7))
    found = culprit(later(seen, 0.2))
    assert (found.cause, found.culprit.rank) == (Reason.TRAINER_HUNG, rank)
    assert found.charge == Charge.USER
    assert "waited for 600 s in ALLREDUCE" in found.message
    alone = culprit(later(with_exit(running(), 1 - rank, exit_code=-6, signal=6, tail=tail), 0.2))
    assert alone.culprit.rank == 1 - rank, "without a record it is who ended first"


def test_what_the_ranks_did_otherwise_is_the_programs() -> None:
    seen = with_exit(running(), 0, exit_code=-6, signal=6, tail=[NEW])
    seen = told(told(seen, 0, waits(7)), 1, waits(7, op="nccl:broadcast"))
    found = culprit(later(seen, 0.2))
    assert found.culprit.signature == "CollectiveMismatch"
    assert "nccl:broadcast" in found.message


def test_another_end_is_nobodys_wait() -> None:
    seen = with_exit(running(), 0, exit_code=1, tail=["ValueError: no"])
    seen = told(told(seen, 0, waits(7)), 1, idle(6))
    assert culprit(later(seen, 0.2)).culprit.rank == 0


def test_a_sign_of_broken_hardware_says_more_than_that_the_rank_was_missing() -> None:
    """Its GPU failed, so it was missing, and ended a moment after the rank that waited for it."""
    seen = with_exit(running(), 0, exit_code=-6, signal=6, tail=[NEW])
    seen = told(told(seen, 1, idle(6)), 0, waits(7))
    tail = ["CUDA error: uncorrectable ECC error encountered"]
    seen = later(with_exit(later(seen, 0.1), 1, exit_code=1, tail=tail), 0.1)
    found = culprit(seen)
    assert found.culprit.rank == 1
    assert (found.charge, found.culprit.signature) != (Charge.USER, "CollectiveTimeout")
    assert found.charge == Charge.INFRASTRUCTURE
    assert "the other ranks waited for it" in found.message
