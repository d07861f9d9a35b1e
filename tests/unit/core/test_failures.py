"""One fault a cause: pod status fixtures as Kubernetes writes them, and what they are taken for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.observations import (
    applied,
    later,
    pod_of,
    running,
    with_exit,
    with_pod,
    with_report,
    with_view,
    without_pod,
)
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.status import RestartKind
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import ContainerEnd, ContainerView, Observed
from rtj_operator.core.plan import Plan


def terminated(code: int, reason: str, message: str | None = None) -> ContainerView:
    end = ContainerEnd(exit_code=code, reason=reason, message=message, finished_at=1009.0)
    return ContainerView(name="trainer", ended=end)


FAILED: dict[str, Any] = {"phase": "Failed", "trainer": terminated(137, "Error")}

# Pod status by cause, from KEP-3329 and the kubelet: what changes in rank 1's pod -> the reason,
# and whose budget it uses.
CAUSES: dict[str, tuple[dict[str, Any], Reason, Charge]] = {
    "scheduler preemption": (
        {**FAILED, "disruption": "PreemptionByScheduler"},
        Reason.POD_PREEMPTED,
        Charge.INFRASTRUCTURE,
    ),
    "scheduler preemption, as the KEP spells it": (
        {**FAILED, "disruption": "PreemptionByKubeScheduler"},
        Reason.POD_PREEMPTED,
        Charge.INFRASTRUCTURE,
    ),
    "taint eviction": (
        {**FAILED, "disruption": "DeletionByTaintManager"},
        Reason.NODE_NOT_READY,
        Charge.INFRASTRUCTURE,
    ),
    "drain": (
        {**FAILED, "disruption": "EvictionByEvictionAPI"},
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "memory pressure": (
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
            "disruption": "TerminationByKubelet",
            "trainer": terminated(137, "ContainerStatusUnknown"),
        },
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "disk pressure": (
        {**FAILED, "reason": "Evicted", "disruption": "TerminationByKubelet"},
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "container out of memory": (
        {"phase": "Failed", "trainer": terminated(137, "OOMKilled")},
        Reason.OUT_OF_MEMORY,
        Charge.USER,
    ),
    "its own disk use": (
        {
            **FAILED,
            "reason": "Evicted",
            "message": "Pod ephemeral local storage usage exceeds the total limit of 1Gi.",
        },
        Reason.POD_EVICTED,
        Charge.USER,
    ),
    "graceful node shutdown": (
        {**FAILED, "reason": "Terminated", "disruption": "TerminationByKubelet"},
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "graceful node shutdown by an older kubelet": (
        {**FAILED, "reason": "NodeShutdown"},
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "graceful node shutdown, SIGTERM handled": (
        {
            "phase": "Succeeded",
            "disruption": "TerminationByKubelet",
            "trainer": terminated(0, "Completed"),
        },
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "exit 0 that nobody released": (
        {"phase": "Succeeded", "trainer": terminated(0, "Completed")},
        Reason.POD_FAILED,
        Charge.INFRASTRUCTURE,
    ),
    "abandoned": (
        {"phase": "Succeeded", "trainer": terminated(0, "Completed", "abandoned")},
        Reason.POD_FAILED,
        Charge.INFRASTRUCTURE,
    ),
    "refused by the kubelet, no container status": (
        {"phase": "Failed", "reason": "UnexpectedAdmissionError", "trainer": None},
        Reason.POD_FAILED,
        Charge.INFRASTRUCTURE,
    ),
    "collected by the pod garbage collector": (
        {"deleting_since": 1009.0, "deletion_deadline": 1009.0, "disruption": "DeletionByPodGC"},
        Reason.NODE_LOST,
        Charge.INFRASTRUCTURE,
    ),
    "node lost": ({"reason": "NodeLost", **FAILED}, Reason.NODE_LOST, Charge.INFRASTRUCTURE),
    "crictl stop": (FAILED, Reason.POD_FAILED, Charge.INFRASTRUCTURE),
    "deleted by someone": (
        {"deleting_since": 1009.0, "deletion_deadline": 1339.0},
        Reason.POD_DELETED,
        Charge.INFRASTRUCTURE,
    ),
}


def cause_of(observed: Observed) -> Plan:
    plan = decide(observed)
    assert plan.rule == "fault", (plan.rule, plan.why)
    assert plan.status is not None
    assert plan.status.current is not None
    return plan


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


def test_a_vanished_pod_is_infrastructure() -> None:
    plan = cause_of(without_pod(running(), 1))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.POD_DELETED
    assert plan.status.current.charge == Charge.INFRASTRUCTURE


def test_the_earliest_is_the_culprit_and_the_rest_are_victims() -> None:
    seen = running()
    seen = with_exit(seen, 0, at=seen.now - 0.1, exit_code=-6, signal=6)
    seen = with_exit(seen, 1, at=seen.now - 5.0, exit_code=1)
    plan = cause_of(seen)
    assert plan.evidence["culprit"] == 1
    assert plan.evidence["victims"] == [0]


def test_what_kubernetes_says_of_the_pod_comes_before_its_exit_code() -> None:
    seen = with_exit(running(), 1, exit_code=-15, signal=15, asked_to_stop=True)
    plan = cause_of(with_pod(seen, 1, **CAUSES["drain"][0]))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.POD_EVICTED


def test_reports_of_older_attempts_are_ignored() -> None:
    seen = running()
    old = with_exit(seen, 1, exit_code=1, attempt=0)
    assert decide(old).rule != "fault"


def test_a_report_of_another_pod_is_ignored() -> None:
    foreign = with_report(
        with_exit(running(), 1, exit_code=1),
        1,
        lambda r: r.model_copy(update={"pod_uid": "someone-else"}),
    )
    assert decide(foreign).rule != "fault"


def test_exit_zero_of_some_ranks_waits_for_the_others() -> None:
    seen = with_exit(running(), 1, exit_code=0)
    plan = decide(seen)
    assert plan.rule != "fault"
    assert plan.wake_at is not None


def test_exit_zero_while_others_fail_is_an_early_exit() -> None:
    seen = running()
    seen = with_exit(seen, 1, at=seen.now - 4, exit_code=0)
    seen = with_exit(seen, 0, at=seen.now - 1, exit_code=1)
    plan = cause_of(seen)
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.EARLY_EXIT
    assert plan.evidence["culprit"] == 1


def test_exit_zero_and_no_step_for_long_is_an_early_exit() -> None:
    seen = with_exit(running(), 1, exit_code=0)
    assert decide(later(seen, 800)).rule != "fault"
    plan = cause_of(later(seen, 1000))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.EARLY_EXIT


def test_a_pod_lost_after_another_rank_ended_well_is_no_early_exit() -> None:
    seen = with_exit(running(), 1, exit_code=0)
    plan = cause_of(without_pod(seen, 0))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.POD_DELETED


def test_a_sidecar_that_flaps_harms_nobody() -> None:
    sidecar = ContainerView(name="rtj-sidecar", running=True, restarts=10, started_at=1001.0)
    assert decide(with_pod(running(), 1, sidecar=sidecar)).rule != "fault"


def test_a_sidecar_that_stays_down_is_lost() -> None:
    seen = running()
    end = ContainerEnd(exit_code=1, reason="Error", finished_at=seen.now)
    sidecar = ContainerView(
        name="rtj-sidecar", last_end=end, waiting_reason="CrashLoopBackOff", restarts=6
    )
    down = with_pod(seen, 1, sidecar=sidecar)
    assert decide(later(down, 30)).rule != "fault"
    plan = cause_of(later(down, 61))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.SIDECAR_LOST


def test_a_sidecar_that_gives_up_a_restore_names_the_culprit() -> None:
    def failed(report: wire.Report) -> wire.Report:
        problem = wire.Problem(
            reason="RestoreFailed", message="s8: hash differs", since=1009.0, retrying=False
        )
        return report.model_copy(update={"phase": wire.SidecarPhase.FAILED, "problem": problem})

    plan = cause_of(with_report(running(), 0, failed))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.RESTORE_FAILED
    assert plan.status.current.charge == Charge.CHECKPOINT
    assert "hash differs" in plan.why


def test_reports_out_of_reach_degrade_and_restart_nothing() -> None:
    seen = running()
    cut = with_view(seen, 1, connected=False, last_contact=seen.now, disconnected_since=seen.now)
    fresh = {n: replace(v, lease_renewed_at=seen.now + 30) for n, v in seen.nodes.items()}
    plan = decide(replace(later(cut, 31), nodes=fresh))
    assert plan.rule == "store_mode"
    assert plan.status is not None
    assert plan.status.attempt == 1
    degraded = next(c for c in plan.status.conditions if c.type == "Degraded")
    assert (degraded.status, degraded.reason) == ("True", Reason.REPORTS_UNREACHABLE)
    assert pod_of(cut, 1).uid


def test_an_operator_that_has_just_begun_gives_its_pods_time_to_be_heard() -> None:
    """A long-running job whose sidecars this process has not asked yet is no lost job."""
    seen = later(running(has_store=False), 3600)
    fresh = {n: replace(v, lease_renewed_at=seen.now) for n, v in seen.nodes.items()}
    unheard = {
        "report": None,
        "received_at": None,
        "connected": False,
        "last_contact": None,
        "polled_since": seen.now,
        "disconnected_since": seen.now,
    }
    begun = replace(with_view(with_view(seen, 0, **unheard), 1, **unheard), nodes=fresh)
    assert decide(begun).rule not in ("fault", "converge")
    later_on = replace(
        later(begun, 179),
        nodes={n: replace(v, lease_renewed_at=seen.now + 179) for n, v in fresh.items()},
    )
    assert decide(later_on).rule != "fault"
    too_late = replace(
        later(begun, 181),
        nodes={n: replace(v, lease_renewed_at=seen.now + 181) for n, v in fresh.items()},
    )
    plan = cause_of(too_late)
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.REPORTS_UNREACHABLE
