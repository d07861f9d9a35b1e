"""Deadlines end a job, the time to live removes it, and another controller's job is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.observations import running, with_job
from kit.scenarios import reaches, recovers, state, trains
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import JobSpec


def operator(*, world: dict[str, Any] | None = None, **spec: Any) -> Operator:
    fields = {"replicas": 2, "run_id": "ns/gpt", "template_hash": "h1", **spec}
    return Operator(World(spec=JobSpec(**fields), **(world or {})))


def age(op: Operator) -> float:
    return op.world.now - op.world.created_at


def failed_with(op: Operator) -> tuple[str, str]:
    found = state(op).condition(ConditionType.FAILED)
    assert found is not None
    assert found.status == "True"
    return found.reason, found.message


# --- activeDeadlineSeconds ---


def test_a_job_that_has_had_its_time_fails_and_keeps_what_it_saved() -> None:
    op = operator(active_deadline_seconds=60)
    trains(op, step=8)
    reaches(op, JobPhase.FAILED)
    assert 60 <= age(op) < 62
    reason, message = failed_with(op)
    assert reason == Reason.DEADLINE_EXCEEDED
    assert "activeDeadlineSeconds" in message
    op.run_until(lambda: not op.world.pods, within=60)
    trained = max(s.step for s in op.world.store.saves)
    assert (state(op).checkpoint.last_durable_step or 0) <= trained
    assert state(op).failures == 0, "the user's wish is no failure of the trainer"


def test_time_that_it_was_suspended_does_not_count_and_resuming_begins_anew() -> None:
    op = operator(active_deadline_seconds=60)
    trains(op, step=4)
    op.world.change_spec(suspend=True)
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED)
    op.run(120)
    assert state(op).phase == JobPhase.SUSPENDED
    op.world.change_spec(suspend=False)
    again = op.world.now
    recovers(op, attempt=2)
    reaches(op, JobPhase.FAILED)
    assert 60 <= op.world.now - again < 62


def test_a_job_made_suspended_counts_from_when_it_was_let_go() -> None:
    op = operator(active_deadline_seconds=30, start_deadline_seconds=30, suspend=True)
    op.run(100)
    assert state(op).phase == JobPhase.SUSPENDED
    op.world.change_spec(suspend=False)
    again = op.world.now
    op.run(1)
    assert not state(op).is_terminal
    reaches(op, JobPhase.FAILED)
    assert 30 <= op.world.now - again < 32


def test_a_hold_counts() -> None:
    """A job that waits for a person holds its place in a queue all the same."""
    op = operator(active_deadline_seconds=60)
    op.world.store.reachable = False
    reaches(op, JobPhase.HELD)
    reaches(op, JobPhase.FAILED)
    assert failed_with(op)[0] == Reason.DEADLINE_EXCEEDED


def test_a_job_that_ends_in_time_is_complete() -> None:
    op = operator(active_deadline_seconds=600, world={"total_steps": 12})
    reaches(op, JobPhase.SUCCEEDED)
    op.run(700)
    assert state(op).is_true(ConditionType.COMPLETE)
    assert not state(op).is_true(ConditionType.FAILED)


def test_a_deadline_that_was_lengthened_in_time_is_the_one_that_counts() -> None:
    op = operator(active_deadline_seconds=60)
    trains(op, step=8)
    op.world.change_spec(active_deadline_seconds=90)
    reaches(op, JobPhase.FAILED)
    assert 90 <= age(op) < 92


# --- startDeadlineSeconds ---


def test_a_job_that_cannot_start_in_time_fails_and_says_why_it_could_not() -> None:
    op = operator(start_deadline_seconds=60)
    for node in op.world.nodes.values():
        node.gpus = 0
    reaches(op, JobPhase.FAILED)
    assert 60 <= age(op) < 62
    reason, message = failed_with(op)
    assert reason == Reason.START_DEADLINE_EXCEEDED
    assert "startDeadlineSeconds" in message
    assert "0/4 nodes are available" in message
    op.run_until(lambda: not op.world.pods)


def test_after_the_first_start_only_the_other_deadline_counts() -> None:
    op = operator(start_deadline_seconds=30)
    trains(op, step=4)
    op.run(60)
    op.world.kill_trainer(1, code=-9)
    recovers(op, attempt=2)
    assert not state(op).is_terminal


# --- ttlSecondsAfterFinished ---


def test_a_finished_job_is_removed_when_its_time_to_live_is_over() -> None:
    op = operator(ttl_seconds_after_finished=100, world={"total_steps": 12})
    reaches(op, JobPhase.SUCCEEDED)
    ended = op.world.now
    op.run(95)
    assert not op.world.gone
    op.run_until(lambda: op.world.gone, within=10)
    assert op.world.now - ended < 102


def test_it_stays_as_long_as_one_of_its_pods() -> None:
    """The world itself raises LawBroken at a removal with pods."""
    op = operator(ttl_seconds_after_finished=0, world={"total_steps": 12})
    reaches(op, JobPhase.SUCCEEDED)
    assert op.world.pods
    assert not op.world.gone
    op.run_until(lambda: not op.world.pods)
    op.run_until(lambda: op.world.gone, within=5)


def test_a_failed_job_has_the_same_time_to_live() -> None:
    op = operator(active_deadline_seconds=30, ttl_seconds_after_finished=20)
    reaches(op, JobPhase.FAILED)
    op.run_until(lambda: op.world.gone, within=60)


def test_without_one_it_stays() -> None:
    op = operator(world={"total_steps": 12})
    reaches(op, JobPhase.SUCCEEDED)
    op.run(4000)
    assert not op.world.gone


# --- managedBy ---


@pytest.mark.parametrize("deleting", [False, True])
def test_a_job_of_another_controller_is_not_touched(deleting: bool) -> None:
    seen = with_job(running(), managed_elsewhere="kueue.x-k8s.io/multikueue", deleting=deleting)
    plan = decide(replace(seen, pods=()))
    assert plan.is_empty
    assert plan.notes == ()
    assert plan.wake_at is None
    assert "kueue.x-k8s.io/multikueue" in plan.why


# --- what comes after the end ---


def ended(*, complete: bool) -> Operator:
    op = operator(world={"total_steps": 12} if complete else {}, active_deadline_seconds=20)
    reaches(op, JobPhase.SUCCEEDED if complete else JobPhase.FAILED)
    return op


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"suspend": True},
        {"active_deadline_seconds": 10_000},
        {"active_deadline_seconds": 1},
        {"template_hash": "h2"},
        {"replicas": 2, "max_restarts": 99},
    ],
    ids=str,
)
def test_nothing_that_is_changed_afterwards_starts_it_again(
    complete: bool, change: dict[str, Any]
) -> None:
    op = ended(complete=complete)
    before = state(op)
    op.world.change_spec(**change)
    op.run(400)
    after = state(op)
    assert (after.attempt, after.starts, after.phase) == (
        before.attempt,
        before.starts,
        before.phase,
    )
    assert after.completion_time == before.completion_time
    assert op.world.pods == {}


@pytest.mark.parametrize("complete", [True, False])
def test_its_pods_go_even_from_a_node_that_died(complete: bool) -> None:
    op = ended(complete=complete)
    for node in {pod.node for pod in op.world.pods.values()}:
        op.world.kill_node(node or "")
    op.run_until(lambda: not op.world.pods, within=600)
    assert state(op).phase == (JobPhase.SUCCEEDED if complete else JobPhase.FAILED)


@pytest.mark.parametrize("action", list(wire.RequestAction))
def test_a_request_afterwards_is_answered_and_starts_nothing(action: wire.RequestAction) -> None:
    op = ended(complete=False)
    attempt = state(op).attempt
    save = "f1-n1-s4" if action == wire.RequestAction.RESUME_FROM else None
    op.world.request = wire.Request(id="9", action=action, save=save)
    op.world.hint = True
    op.run_until(lambda: state(op).last_request is not None, within=60)
    op.run(60)
    assert state(op).attempt == attempt
    assert state(op).is_terminal
