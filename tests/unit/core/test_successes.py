"""Whose exit with 0 makes a job complete, and from which step on."""

from __future__ import annotations

from typing import Any

import pytest
from kit.decisions import status_of, updated
from kit.observations import later, running, with_exit, with_pod, with_report
from kit.scenarios import reaches, state, trains
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.status import ConditionType, JobPhase
from rtj_operator.core.decide import decide
from rtj_operator.core.gang import Alarm, gather
from rtj_operator.core.observed import JobSpec, Observed
from rtj_operator.core.plan import DeletePod, PatchDirective
from rtj_operator.core.policy import Policy
from rtj_operator.core.successes import reached_step


def operator(*, world: dict[str, Any] | None = None, **spec: Any) -> Operator:
    fields = {"replicas": 2, "run_id": "ns/gpt", "template_hash": "h1", **spec}
    return Operator(World(spec=JobSpec(**fields), **(world or {})))


def drained(observed: Observed, rank: int) -> Observed:
    """That rank's trainer ended by itself with 0, and all it saved is durable."""
    ended = with_exit(observed, rank, exit_code=0)
    return with_report(ended, rank, updated(phase=wire.SidecarPhase.DRAINED))


# --- success.ranks: Zero ---


def test_rank_0_alone_decides_where_the_spec_says_so() -> None:
    """Rank 1 goes on for ever: an evaluator, a data server."""
    op = operator(
        rank_zero_decides=True, world={"total_steps": 12, "lasting_ranks": frozenset({1})}
    )
    reaches(op, JobPhase.SUCCEEDED)
    assert state(op).checkpoint.last_durable_step == 12
    op.run_until(lambda: not op.world.pods, within=60)
    assert state(op).restarts == 0


def test_by_default_it_does_not() -> None:
    op = operator(world={"total_steps": 12, "lasting_ranks": frozenset({1})})
    op.run_until(lambda: op.world.store.newest() is not None and op.world.store.newest().step == 12)
    op.run(60)
    assert not state(op).is_terminal


def test_the_trainers_that_go_on_are_ended_with_their_grace_and_rank_0_is_released() -> None:
    done = drained(running(rank_zero_decides=True), 0)
    status = status_of(decide(done))
    assert status.is_true(ConditionType.COMPLETE)
    op = operator(
        rank_zero_decides=True, world={"total_steps": 12, "lasting_ranks": frozenset({1})}
    )
    reaches(op, JobPhase.SUCCEEDED)
    plan = next(p for p in op.plans if p.rule == "finished")
    (ended,) = [a for a in plan.actions if isinstance(a, DeletePod)]
    assert ended.name == op.world.pod_of(1).name
    assert not ended.force
    (told,) = [a for a in plan.actions if isinstance(a, PatchDirective)]
    assert (told.pod, told.directive.phase) == (op.world.pod_of(0).name, wire.Phase.RELEASE)


def test_rank_0_has_to_be_drained_first() -> None:
    seen = with_exit(running(rank_zero_decides=True), 0, exit_code=0)
    assert decide(seen).status is None or not status_of(decide(seen)).is_terminal
    late = decide(later(seen, 200))
    assert status_of(late).hold is not None
    assert status_of(late).hold.reason == Reason.FINAL_CHECKPOINT_NOT_DURABLE


def test_what_becomes_of_other_trainers_after_rank_0_ended_is_no_fault() -> None:
    """Its peers are gone for them: they end as victims."""
    seen = with_exit(running(rank_zero_decides=True), 0, exit_code=0)
    seen = with_exit(seen, 1, exit_code=1)
    plan = decide(seen)
    assert plan.rule != "fault"
    assert plan.status is None or plan.status.attempt == 1


def test_a_crash_of_another_rank_before_that_is_one() -> None:
    seen = with_exit(running(rank_zero_decides=True), 1, exit_code=1)
    assert status_of(decide(seen)).attempt == 2


def test_a_lost_pod_is_one_while_rank_0_still_ships() -> None:
    seen = with_exit(running(rank_zero_decides=True), 0, exit_code=0)
    seen = with_pod(seen, 1, phase="Failed", reason="Evicted", disruption="TerminationByKubelet")
    assert status_of(decide(seen)).attempt == 2


def test_another_rank_may_end_early() -> None:
    seen = drained(running(rank_zero_decides=True), 1)
    plan = decide(later(seen, 3600))
    assert plan.rule != "fault"
    assert plan.status is None or plan.status.attempt == 1


# --- success.targetStep ---


def test_a_trainer_that_ends_before_the_target_is_started_again_until_it_is_there() -> None:
    """A script with a limit of its own for each run: 12 steps, then exit 0."""
    op = operator(target_step=30, max_restarts=1, world={"chunk_steps": 12})
    reaches(op, JobPhase.SUCCEEDED, within=600)
    assert state(op).starts == 3
    assert {r.cause for r in state(op).attempts[1:]} == {Reason.TARGET_STEP_NOT_REACHED}
    newest = op.world.store.newest()
    assert newest is not None
    assert newest.step == 36


def test_one_that_makes_no_durable_step_spends_the_budget_and_says_what_is_missing() -> None:
    op = operator(target_step=30, max_restarts=2, world={"total_steps": 12})
    reaches(op, JobPhase.FAILED, within=600)
    found = state(op).condition(ConditionType.FAILED)
    assert found is not None
    assert found.reason == Reason.RESTART_BUDGET_SPENT
    assert "success.targetStep 30" in found.message
    assert "step 12" in found.message


def test_the_target_is_no_reason_to_stop_a_trainer() -> None:
    op = operator(target_step=8, world={"total_steps": 40})
    trains(op, step=20)
    reaches(op, JobPhase.SUCCEEDED)
    assert state(op).starts == 1


@pytest.mark.parametrize(
    ("progress", "counts"),
    [
        ({"step": 50, "source": "file"}, True),
        ({"step": 50, "source": "checkpoint"}, True),
        ({"step": 50, "source": "log"}, False),
        ({"step": 50, "source": "log", "confirmed": True}, True),
        ({"step": None}, False),
    ],
)
def test_a_step_out_of_the_log_counts_once_a_checkpoint_has_equalled_one(
    progress: dict[str, Any], counts: bool
) -> None:
    seen = running(target_step=50)
    for rank in (0, 1):
        seen = drained(seen, rank)
        seen = with_report(seen, rank, updated(progress=wire.ProgressView(**progress)))
    plan = decide(seen)
    assert (plan.rule == "success") is counts
    if not counts:
        current = status_of(plan).current
        assert current is not None
        assert (current.cause, current.charge) == (Reason.TARGET_STEP_NOT_REACHED, Charge.USER)


def test_the_last_save_is_waited_for_before_the_step_is_judged() -> None:
    seen = running(target_step=10_000)
    for rank in (0, 1):
        seen = with_exit(seen, rank, exit_code=0)
    assert decide(seen).rule != "fault"


def test_a_step_of_an_older_attempt_does_not_count() -> None:
    """Only what is durable outlives an attempt."""
    seen = running()
    assert seen.job is not None
    seen = with_report(
        seen, 1, lambda r: r.model_copy(update={"trainer": wire.TrainerView(attempt=0)})
    )
    for rank, step in ((0, 3), (1, 90)):
        progress = wire.ProgressView(step=step, source="file")
        seen = with_report(seen, rank, updated(progress=progress))
    gang = gather(seen, policy=Policy(), alarm=Alarm(seen.now), status=seen.job.status)
    durable = seen.job.status.checkpoint.last_durable_step
    assert durable is not None
    assert reached_step(gang) == max(durable, 3)


# --- where reports cannot be had ---


def test_rank_0_decides_through_the_store_too() -> None:
    world = {"deaf": True, "total_steps": 24, "lasting_ranks": frozenset({1})}
    op = operator(rank_zero_decides=True, world=world)
    reaches(op, JobPhase.SUCCEEDED)
    op.run_until(lambda: not op.world.pods, within=120)
    assert state(op).starts == 1


def test_the_target_is_judged_by_rank_0s_sidecar_there() -> None:
    op = operator(target_step=30, world={"deaf": True, "chunk_steps": 12})
    reaches(op, JobPhase.SUCCEEDED, within=1200)
    assert state(op).starts == 3
    assert {r.cause for r in state(op).attempts[1:]} == {Reason.TARGET_STEP_NOT_REACHED}
