"""One fault a cause: pod status fixtures as Kubernetes writes them, and what they are taken for."""

from __future__ import annotations

from typing import Any

import pytest
from kit.causes import CAUSES, cause_of
from kit.observations import applied, later, running, with_exit, with_pod, with_report
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.status import RestartKind
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import ContainerEnd, ContainerView


@pytest.mark.parametrize(("fields", "reason", "charge"), CAUSES.values(), ids=list(CAUSES))
def test_pod_status_by_cause(fields: dict[str, Any], reason: Reason, charge: Charge) -> None:
    plan = cause_of(with_pod(running(), 1, **fields))
    assert plan.status is not None
    current = plan.status.current
    assert current is not None
    assert (current.cause, current.charge) == (reason, charge)
    assert current.kind == RestartKind.REPLACE
    assert current.replaced == [1]
    assert current.culprit is not None
    assert current.culprit.rank == 1
    assert plan.status.attempt == 2
    assert not plan.status.is_started, "the new pod has nothing at hand: no fast path"


def test_a_disruption_that_was_taken_back_is_none() -> None:
    # The view holds the reason only while the condition is True.
    assert decide(with_pod(running(), 1, disruption=None)).is_empty


ENDS: dict[str, tuple[dict[str, Any], Reason, int]] = {
    "exception": ({"exit_code": 1}, Reason.TRAINER_FAILED, 1),
    "usage": ({"exit_code": 2}, Reason.TRAINER_FAILED, 2),
    "segfault": ({"exit_code": -11, "signal": 11}, Reason.TRAINER_SIGNALED, 139),
    "SIGKILL": ({"exit_code": -9, "signal": 9}, Reason.TRAINER_SIGNALED, 137),
    "only the signal is known": ({"signal": 6}, Reason.TRAINER_SIGNALED, 134),
    "a child was killed for memory": (
        {"exit_code": 1, "oom_kills": 1},
        Reason.OUT_OF_MEMORY,
        1,
    ),
    "asked to stop from outside": (
        {"exit_code": 0, "asked_to_stop": True},
        Reason.TRAINER_SIGNALED,
        0,
    ),
}


@pytest.mark.parametrize(("fields", "reason", "code"), ENDS.values(), ids=list(ENDS))
def test_how_a_trainer_ended(fields: dict[str, Any], reason: Reason, code: int) -> None:
    plan = cause_of(with_exit(running(), 1, **fields))
    status = plan.status
    assert status is not None
    assert status.current is not None
    assert status.current.cause == reason
    assert status.current.charge == Charge.USER
    assert status.current.kind == RestartKind.IN_PLACE
    assert status.current.culprit is not None
    assert status.current.culprit.exit_code == code


def test_the_whole_container_killed_for_memory_is_seen_in_last_state() -> None:
    seen = with_exit(running(), 1, exit_code=-9, signal=9, container_restarted=True)
    end = ContainerEnd(exit_code=137, reason="OOMKilled", finished_at=1009.0)
    trainer = ContainerView(name="trainer", running=True, restarts=1, last_end=end)
    plan = cause_of(with_pod(seen, 1, trainer=trainer))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.OUT_OF_MEMORY


def test_a_container_that_does_not_come_back_is_replaced() -> None:
    seen = running()
    end = ContainerEnd(exit_code=137, reason="OOMKilled", finished_at=float(int(seen.now)))
    down = with_pod(seen, 1, trainer=ContainerView(name="trainer", ended=end))
    first = cause_of(later(down, 1))
    assert first.status is not None
    assert first.status.current is not None
    assert first.status.current.kind == RestartKind.IN_PLACE
    again = cause_of(applied(later(down, 7), first))
    assert again.status is not None
    assert again.status.current is not None
    assert again.status.current.kind == RestartKind.REPLACE
    assert again.status.current.replaced == [1]
    assert again.status.current.charge == Charge.USER, "the fault before it is still charged"


def test_a_container_that_dies_before_its_trainer_began_costs_nothing() -> None:
    """The start is recorded and the save is being restored: there is no trainer to lose."""
    restores = {"phase": wire.SidecarPhase.RESTORING, "trainer": wire.TrainerView(attempt=0)}
    seen = with_report(running(), 1, lambda report: report.model_copy(update=restores))
    end = ContainerEnd(exit_code=137, finished_at=float(int(seen.now)))
    down = with_pod(seen, 1, trainer=ContainerView(name="trainer", ended=end))
    assert decide(later(down, 1)).rule != "fault"
    plan = cause_of(later(down, 7))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.kind == RestartKind.REPLACE, "it did not come back"


def test_an_old_end_shown_late_is_not_a_new_fault() -> None:
    seen = running()
    assert seen.job is not None
    assert seen.job.status.resume is not None
    before = seen.job.status.resume.at - 3
    end = ContainerEnd(exit_code=137, reason="OOMKilled", finished_at=before)
    waiting = ContainerView(name="trainer", ended=end)
    # Still down five seconds after its end is another matter: then it is lost.
    soon = with_pod(later(seen, before + 4 - seen.now), 1, trainer=waiting)
    assert decide(soon).rule != "fault"
