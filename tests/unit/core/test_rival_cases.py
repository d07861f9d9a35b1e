"""Public bug reports of other operators, each as a test: the right behaviour, and why.

Numbers refer to the trackers named in each docstring.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.observations import (
    applied,
    later,
    new_job,
    running,
    started,
    with_exit,
    with_job,
    with_report,
)
from kit.scenarios import SCENARIOS, recovers
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase, RestartKind, Status
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import SpecProblem


def crash_until_terminal(operator: Operator, *, code: int) -> int:
    """Rank 0 fails in each attempt; returns how often it failed."""
    world, count = operator.world, 0
    while not world.state.is_terminal:
        attempt = world.state.attempt
        operator.run_until(
            lambda a=attempt: world.state.attempt == a and world.state.phase == JobPhase.RUNNING,
            within=600,
        )
        world.kill_trainer(0, code=code)
        count += 1
        operator.run_until(lambda a=attempt: world.state.attempt > a or world.state.is_terminal)
        assert count < 50
    return count


def test_codes_above_127_use_the_budget_too() -> None:
    """kubeflow/trainer#2045: exit 137 was restarted for ever, the limit ignored."""
    world = World(spec=replace(new_job().spec, max_restarts=2), save_every=10_000)
    operator = started(world)
    assert crash_until_terminal(operator, code=-9) == 3
    assert world.state.is_true(ConditionType.FAILED)


def test_a_failed_job_has_one_terminal_condition_and_a_time() -> None:
    """kubeflow/trainer#2044: failed for good but shown as Restarting."""
    world = World(spec=replace(new_job().spec, max_restarts=0), save_every=10_000)
    operator = started(world)
    crash_until_terminal(operator, code=1)
    status = world.state
    assert status.phase == JobPhase.FAILED
    assert status.completion_time is not None
    assert not status.is_true(ConditionType.COMPLETE)
    assert not status.is_true(ConditionType.RUNNING)
    operator.run(300)
    assert world.state == status


def test_a_cascade_counts_once() -> None:
    """kubeflow/trainer#2000: one of four dies, the others follow one by one with NCCL aborts."""
    world = World(spec=replace(new_job().spec, replicas=4), victims_exit_after=None, save_every=4)
    operator = Operator(world)
    operator.run_until(lambda: (world.state.checkpoint.last_durable_step or 0) >= 4)
    attempt = world.state.attempt
    world.kill_trainer(2, code=1)
    for rank, after in ((0, 0.25), (1, 0.5), (3, 0.25)):
        operator.run(after)
        pod = world.pod_of(rank)
        if pod.trainer is not None and pod.trainer.attempt == attempt:
            pod.trainer.end(now=world.now, code=-6)
            pod.change()
    operator.run(60)
    assert world.state.attempt == attempt + 1
    assert world.state.restarts == 1
    assert world.state.failures == 1
    assert world.state.phase == JobPhase.RUNNING


def test_children_lost_after_the_end_reopen_nothing() -> None:
    """kubeflow/trainer#3779: finished children removed by TTL were made again, endlessly."""
    operator = SCENARIOS["runs_to_the_end"].run()
    world = operator.world
    world.pods.clear()
    for _ in range(10):
        world.hint = True
        assert operator.run_pass().is_empty


def test_a_spec_that_cannot_run_says_so_in_a_condition() -> None:
    """kubeflow/trainer#3671: build errors only in Events, an empty status."""
    seen = new_job().observe()
    problem = SpecProblem(
        reason=Reason.COMMAND_MISSING, message="spec.template: container trainer has no command"
    )
    for spec in (seen.job and seen.job.spec, None):
        plan = decide(with_job(seen, problem=problem, spec=spec))
        assert plan.status is not None
        accepted = plan.status.condition(ConditionType.ACCEPTED)
        assert accepted is not None
        assert (accepted.status, accepted.reason) == ("False", Reason.COMMAND_MISSING)
        assert "spec.template" in accepted.message
        assert accepted.observed_generation == 1
        assert plan.status.attempt == 0
        again = decide(with_job(seen, problem=problem, spec=spec, status=plan.status))
        assert again.is_empty
        fixed = decide(with_job(seen, problem=None, status=plan.status, generation=2))
        assert fixed.rule == "first_attempt"
        assert fixed.status is not None
        assert fixed.status.is_true(ConditionType.ACCEPTED)


def test_the_same_failure_seen_five_times_counts_once() -> None:
    """kubeflow/trainer#2408: counters raised with every reconcile of the same failed pod."""
    seen = with_exit(running(), 1, exit_code=1)
    plan = decide(seen)
    assert plan.status is not None
    for _ in range(5):
        assert decide(seen).status == plan.status, "the same observation, the same decision"
    after = applied(seen, plan)
    for _ in range(5):
        again = decide(after)
        assert again.status is None or again.status.restarts == plan.status.restarts
        assert again.rule != "fault"


def test_a_finished_job_holds_no_gpu_even_if_a_worker_ignores_sigterm() -> None:
    """kubeflow/trainer#1982: terminal, and workers still run."""
    operator = SCENARIOS["runs_to_the_end"].run()
    assert not operator.world.pods


def test_resume_after_suspend_is_a_new_attempt() -> None:
    """kubernetes-sigs/jobset#1282: the attempt id stayed, logs were mixed."""
    status = SCENARIOS["suspended_and_resumed"].run().world.state
    assert status.attempt == 2
    assert status.starts == 2
    assert status.restarts == 0
    assert status.budgets.restarts_since_progress == 0


def test_a_failure_while_the_operator_was_away_is_decided_all_the_same() -> None:
    """volcano-sh/volcano#3967: after a restart the policy was skipped."""
    world = new_job()
    operator = started(world)
    operator.run_until(lambda: (world.state.checkpoint.last_durable_step or 0) >= 4)
    world.kill_trainer(1, code=1)
    for _ in range(80):
        world.tick()  # nobody looks
    back = Operator(world)
    recovers(back, attempt=2)
    assert world.state.restarts == 1


def test_a_restart_resumes_and_attempts_never_overlap() -> None:
    """ray-project/kuberay#2155, #5211: a new driver began at zero; both attempts wrote."""
    operator = SCENARIOS["node_cut_off_and_healed"].run()
    world = operator.world
    assert world.state.resume is not None
    assert world.state.resume.step == 8
    assert all(s.fence == 2 for s in world.store.saves if s.step > 8)
    assert world.store.refused >= 1, "the zombie tried to publish"
    names = [s.name for s in world.store.saves]
    assert len(names) == len(set(names))


def test_all_ranks_start_from_the_same_step() -> None:
    """dlrover#770: after a restart only one worker loaded the checkpoint."""
    operator = SCENARIOS["pod_deleted"].run()
    told = {
        (p.directive.resume.name, p.directive.resume.step)
        for p in operator.world.pods.values()
        if p.directive is not None and p.directive.resume is not None
    }
    assert len(told) == 1


def test_a_flapping_sidecar_does_not_fail_the_job() -> None:
    """JobSet counts container restarts of sidecars against maxRestarts."""
    world = new_job(max_restarts=0)
    operator = started(world)
    for _ in range(10):
        world.kill_sidecar(1, down=0.5)
        operator.run(5)
    assert world.state.phase == JobPhase.RUNNING
    assert world.state.restarts == 0


def test_progress_gives_credit() -> None:
    """Volcano never resets its retry count."""
    world = new_job(max_restarts=1)
    operator = started(world)
    for attempt in range(2, 7):
        step = world.state.checkpoint.last_durable_step or 0
        operator.run_until(
            lambda s=step: (
                (world.state.checkpoint.last_durable_step or 0) > s
                and world.state.phase == JobPhase.RUNNING
            )
        )
        world.kill_trainer(0, code=1)
        recovers(operator, attempt=attempt)
    assert world.state.restarts == 5
    assert not world.state.is_terminal


def test_success_of_one_rank_is_no_success() -> None:
    """KF v1: an elastic job succeeded when any worker did."""
    seen = with_exit(running(), 1, exit_code=0)
    drained = with_report(
        seen, 1, lambda r: r.model_copy(update={"phase": wire.SidecarPhase.DRAINED})
    )
    plan = decide(drained)
    assert plan.status is None or not plan.status.is_terminal


def test_each_restart_is_kept_in_the_history() -> None:
    """KF v1: a condition with the same reason kept the message of the first restart."""
    status = SCENARIOS["crash_loop"].run().world.state
    causes = [(r.attempt, r.cause) for r in status.attempts]
    assert causes == [(1, "FirstStart"), *[(n, "TrainerSignaled") for n in range(2, 6)]]
    assert all(r.ended_at is not None for r in status.attempts)


def test_in_place_has_a_limit_then_all_pods_are_new() -> None:
    """KubeRay: a pod that restarts again and again on a bad node was never moved."""
    status = SCENARIOS["crash_loop"].run().world.state
    kinds = [r.kind for r in status.attempts]
    assert kinds[:4] == [
        RestartKind.FIRST,
        RestartKind.IN_PLACE,
        RestartKind.IN_PLACE,
        RestartKind.RECREATE,
    ]


@pytest.mark.parametrize("seconds", [0, 3600, 86_400 * 365])
def test_time_alone_never_harms_a_finished_job(seconds: float) -> None:
    operator = SCENARIOS["runs_to_the_end"].run()
    plan = decide(later(operator.world.observe(), seconds))
    assert plan.is_empty
    assert isinstance(operator.world.state, Status)
