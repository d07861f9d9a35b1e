"""Which of several ends is the fault: culprits, victims, early exits, silence."""

from __future__ import annotations

from dataclasses import replace

from kit.causes import CAUSES, cause_of
from kit.observations import (
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
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import ContainerEnd, ContainerView


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
