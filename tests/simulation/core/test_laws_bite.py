"""The laws that the simulated world checks: each is broken once by hand, and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit import simulated_laws as laws
from kit.scenarios import SCENARIOS, Scenario, trains
from kit.simulated import World
from kit.simulated_laws import LawBroken
from kit.simulated_operator import Operator
from kit.simulated_store import Save
from rtj_api.reasons import Reason
from rtj_operator.core.plan import CreatePod, Plan
from rtj_operator.core.policy import Policy
from rtj_sidecar.runs.records import Parent


@pytest.fixture
def op() -> Operator:
    """A gang of two that trains in attempt 2, after a crash."""
    return SCENARIOS["crash_in_place"].run()


def check(op: Operator, **changes: Any) -> None:
    new = op.world.state.model_copy(update=changes)
    laws.check_status(op.world, op.world.state, new)


def test_what_is_recorded_breaks_none(op: Operator) -> None:
    check(op)


CHANGES: dict[str, Callable[[Operator], dict[str, Any]]] = {
    "attempt jumped": lambda op: {"attempt": op.world.state.attempt + 2},
    "attempt went back": lambda op: {"attempt": op.world.state.attempt - 1},
    "starts are counted": lambda op: {"starts": op.world.state.starts + 1},
    "restarts went back": lambda op: {"restarts": op.world.state.restarts - 1},
    "without its ledger|ledger is gone": lambda op: {"ledger": None},
    "does not sum": lambda op: {
        "ledger": op.world.state.ledger.model_copy(update={"until": op.world.now})  # type: ignore[union-attr]
    },
    "the budget was exceeded": lambda op: {
        "budgets": op.world.state.budgets.model_copy(update={"restarts_since_progress": 99})
    },
    "has the marks of": lambda op: {
        "current": op.world.state.current.model_copy(update={"attempt": 1})  # type: ignore[union-attr]
    },
    "lastDurableStep went back": lambda op: {
        "checkpoint": op.world.state.checkpoint.model_copy(update={"last_durable_step": 1})
    },
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_wrong_status_is_found(op: Operator, words: str) -> None:
    with pytest.raises(LawBroken, match=words):
        check(op, **CHANGES[words](op))


def test_the_user_does_not_pay_for_a_node(op: Operator) -> None:
    state = op.world.state
    used = state.budgets.restarts_since_progress + 1
    assert state.current is not None
    with pytest.raises(LawBroken, match="pays for"):
        check(
            op,
            budgets=state.budgets.model_copy(update={"restarts_since_progress": used}),
            current=state.current.model_copy(update={"cause": Reason.NODE_LOST}),
        )


def test_an_effect_before_its_decision_is_found(op: Operator) -> None:
    ahead = CreatePod(name="gpt-1-3-abcd", rank=1, made_in=3)
    with pytest.raises(LawBroken, match="before attempt 3 was recorded"):
        op.world.create(ahead)
    with pytest.raises(LawBroken, match="should be"):
        op.world.create(replace(ahead, name="gpt-1-x-abcd", made_in=2))


def test_a_second_trainer_and_one_from_nothing_are_found(op: Operator) -> None:
    pod = op.world.pod_of(1)
    assert pod.accepted is not None
    with pytest.raises(LawBroken, match="two trainers of rank 1"):
        op.world.check_start(pod, pod.accepted)
    assert pod.accepted.resume is not None
    scratch = pod.accepted.model_copy(
        update={"attempt": 9, "resume": pod.accepted.resume.model_copy(update={"scratch": True})}
    )
    with pytest.raises(LawBroken, match=r"without having restored|before"):
        op.world.check_start(pod, scratch)
    with pytest.raises(LawBroken, match="step 0"):
        laws.never_scratch_by_accident(op.world, scratch)


def test_a_plan_without_end_or_rest_is_found(op: Operator) -> None:
    observed = op.world.observe()
    with pytest.raises(LawBroken, match="without an end"):
        laws.waits_with_an_end(observed, Plan(rule="x", why="y"))
    busy = Plan(rule="x", why="y", status=op.world.state, wake_at=1.0)
    with pytest.raises(LawBroken, match="no rest"):
        laws.comes_to_rest([busy, busy])
    with pytest.raises(LawBroken, match="decides otherwise"):
        laws.is_steady(observed, busy, policy=Policy())


def test_a_zombie_that_publishes_is_found() -> None:
    world: World = Scenario("some", lambda op: trains(op, step=8)).run().world
    store, pod = world.store, world.pod_of(0)
    old = pod.fence or 0
    save = Save("f1-n96-s96", 96, world.now, fence=old)
    ship = store.name(pod, save, parent=Parent(scratch=True))
    assert store.claim(pod, attempt=2, has_files=True) == old + 1
    store.send(save, ship)
    assert not store.commit(pod, ship, fence=old), "the real commit refuses it"
    with pytest.raises(LawBroken, match="was published by fence"):
        store.publishes_as_holder(save.name, fence=old)
