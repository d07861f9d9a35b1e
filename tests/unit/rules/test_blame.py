"""Who is to blame: a history of faults, and what the next restart does about the last of them."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_api.reasons import Charge
from rtj_api.rules.blame import MOST_RESTARTS, Diagnosis, End, Factor, diagnose
from rtj_api.rules.origins import BELIEVED, WHAT_FOLLOWS, Origin
from rtj_api.status import Incident

HOUR = 3600.0


def fault(**fields: Any) -> Incident:
    """One that ended two steps after resuming f1-n1-s12, on node a."""
    base: dict[str, Any] = {
        "attempt": 2,
        "alike": "exit 1: ValueError",
        "charge": "user",
        "node": "a",
        "save": "f1-n1-s12",
        "from_step": 12,
        "step": 14,
        "ran_seconds": 30.0,
        "at": 1000.0,
    }
    return Incident.model_validate({**base, **fields})


def found(*faults: Incident, origin: Origin = Origin.OPEN, can_roll_back: bool = True) -> Diagnosis:
    """The diagnosis of the last of them."""
    return diagnose(faults[-1], origin=origin, before=faults[:-1], can_roll_back=can_roll_back)


LATE = {"step": 500}  # long after it resumed
NOTHING = fault(save=None, from_step=None, step=None)


@pytest.mark.parametrize("origin", [Origin.OPEN, Origin.PLACE, Origin.PROGRAM, Origin.PASSING])
def test_one_fault_tells_nothing_apart(origin: Origin) -> None:
    assert found(fault(), origin=origin) == Diagnosis(charge=Charge.USER)


@pytest.mark.parametrize(
    ("faults", "vary"),
    [
        # Soon after resuming, the save is asked first; then the node.
        ((fault(), fault()), Factor.SAVE),
        ((fault(), fault(), fault(varied="Save", save="f1-n0-s8", step=10)), Factor.NODE),
        # Long after it, the node.
        ((fault(**LATE), fault(**LATE)), Factor.NODE),
        ((fault(**LATE), fault(**LATE), fault(**LATE, varied="Node", node="b")), Factor.SAVE),
        # At another step each time: the save is not to blame.
        ((fault(), fault(step=19)), Factor.NODE),
        ((fault(), fault(step=19), fault(step=16, varied="Node", node="b")), None),
        # On two nodes by chance: what is left is the save.
        ((fault(**LATE), fault(**LATE, node="b")), Factor.SAVE),
        # From two saves by chance: what is left is the node.
        ((fault(**LATE), fault(**LATE, save="f2-n1-s400", from_step=400)), Factor.NODE),
        # Another fault in between is no answer.
        ((fault(), fault(alike="SIGKILL"), fault()), Factor.SAVE),
    ],
)
def test_one_factor_is_changed_a_restart(faults: tuple[Incident, ...], vary: Factor | None) -> None:
    answer = found(*faults)
    assert answer.vary == vary
    assert answer.end is None
    assert answer.suspect == (faults[-1].save if vary == Factor.SAVE else None)


def test_without_an_older_save_only_the_node_is_changed() -> None:
    assert found(fault(), fault(), can_roll_back=False).vary == Factor.NODE
    assert found(NOTHING, NOTHING).vary == Factor.NODE


def test_what_fails_at_one_step_whatever_node_and_save_follows_the_step() -> None:
    older = {"save": "f1-n0-s8", "from_step": 8}
    answer = found(
        fault(**LATE),
        fault(step=501),
        fault(**LATE, varied="Node", node="b"),
        fault(**LATE, varied="Save", node="b", **older),
    )
    assert answer.end is End.FAIL
    assert "on 2 nodes and from 2 beginnings" in answer.why
    assert "the data of steps 500 to 502" in answer.why


def test_what_fails_as_many_steps_after_every_save_holds_and_frees_the_saves() -> None:
    older = {"save": "f1-n0-s8", "from_step": 8, "step": 10}
    answer = found(fault(), fault(), fault(varied="Save", **older), fault(varied="Node", node="b"))
    assert answer.end is End.HOLD
    assert answer.withdrawn


def test_an_older_save_that_fails_alike_ends_the_suspicion_at_once() -> None:
    answer = found(fault(), fault(), fault(varied="Save", save="f1-n0-s8", from_step=8, step=10))
    assert answer.withdrawn
    assert answer.end is None


def test_before_any_step_it_is_the_program_where_its_sign_says_so() -> None:
    moved = NOTHING.model_copy(update={"varied": "Node", "node": "b"})
    answer = found(NOTHING, NOTHING, moved, origin=Origin.PLACE)
    assert answer.end is End.FAIL
    assert "before the first step" in answer.why


@pytest.mark.parametrize("count", [3, 9])
def test_before_any_step_what_no_sign_explains_may_pass_and_the_budget_decides(count: int) -> None:
    """A server of data that is away for a minute ends no job in three tries of a second."""
    moved = NOTHING.model_copy(update={"varied": "Node", "node": "b"})
    answer = found(NOTHING, *[moved] * (count - 1), origin=Origin.OPEN)
    assert (answer.end, answer.charge) == (None, Charge.USER)


@pytest.mark.parametrize(
    ("origin", "first"),
    [
        (origin, first)
        for origin in (Origin.OPEN, Origin.PLACE, Origin.PROGRAM)
        for first in (fault(), fault(**LATE), NOTHING)
        if (origin, first) != (Origin.OPEN, NOTHING)
    ],
)
@pytest.mark.parametrize("can_roll_back", [True, False])
def test_no_test_takes_more_than_three_restarts(
    origin: Origin, first: Incident, can_roll_back: bool
) -> None:
    """Whatever is changed, it fails alike: the end comes with the fourth fault at the latest."""
    faults, answer = [first], Diagnosis(charge=Charge.USER)
    for _ in range(MOST_RESTARTS):
        answer = found(*faults, origin=origin, can_roll_back=can_roll_back)
        if answer.end is not None:
            return
        changed: dict[str, Any] = {"varied": answer.vary}
        if answer.vary == Factor.NODE:
            changed["node"] = "b"
        if answer.vary == Factor.SAVE:
            changed |= {"save": "f1-n0-s8", "from_step": 8}
        faults.append(faults[-1].model_copy(update=changed))
    assert found(*faults, origin=origin, can_roll_back=can_roll_back).end is not None


@pytest.mark.parametrize(
    ("a", "b", "ends"),
    [
        ({}, {}, True),
        ({}, {"step": 15}, True),
        ({}, {"step": 16}, False),
        ({"step": None}, {"step": None}, True),
        ({"step": None}, {"step": None, "ran_seconds": 39.0}, True),
        ({"step": None}, {"step": None, "ran_seconds": 300.0}, False),
        ({"step": None, "ran_seconds": None}, {"step": None, "ran_seconds": None}, False),
        ({"step": None}, {}, False),
        # The kernel ends a leak a little sooner or later.
        ({"alike": "OutOfMemory", "step": 1000}, {"alike": "OutOfMemory", "step": 1050}, True),
        ({"alike": "OutOfMemory", "step": 1000}, {"alike": "OutOfMemory", "step": 1100}, False),
    ],
)
def test_a_fault_of_the_program_ends_it_where_it_comes_at_the_same_place(
    a: dict[str, Any], b: dict[str, Any], ends: bool
) -> None:
    answer = found(fault(**a), fault(**b), origin=Origin.PROGRAM)
    assert (answer.end is End.FAIL) == ends
    assert answer.charge == Charge.USER


@pytest.mark.parametrize(
    ("origin", "charge"),
    [
        (Origin.NODE, Charge.INFRASTRUCTURE),
        (Origin.NETWORK, Charge.INFRASTRUCTURE),
        (Origin.CHECKPOINT, Charge.CHECKPOINT),
    ],
)
def test_a_sign_is_believed_a_few_times(origin: Origin, charge: Charge) -> None:
    unread = fault(step=None)
    assert found(unread, origin=origin).charge == charge
    assert found(*[unread] * BELIEVED, origin=origin).charge == charge
    answer = found(*[unread] * (BELIEVED + 1), origin=origin)
    assert answer.charge == Charge.USER
    assert "use its budget" in answer.why


def test_a_sign_of_the_node_moves_the_rank_at_once() -> None:
    assert found(fault(), origin=Origin.NODE).vary == Factor.NODE


@pytest.mark.parametrize(
    ("node", "after", "moves"), [("a", 200.0, True), ("a", 400.0, False), ("b", 200.0, False)]
)
def test_the_network_moves_it_at_the_second_time_within_five_minutes(
    node: str, after: float, moves: bool
) -> None:
    again = fault(node=node, at=1000.0 + after)
    assert (found(fault(), again, origin=Origin.NETWORK).vary == Factor.NODE) == moves


def test_a_save_that_cannot_be_read_is_suspect_at_once() -> None:
    unread = fault(step=None)
    answer = found(unread, origin=Origin.CHECKPOINT)
    assert (answer.suspect, answer.charge) == (unread.save, Charge.CHECKPOINT)
    older = fault(step=None, save="f1-n0-s8", varied="Save")
    both = found(unread, older, origin=Origin.CHECKPOINT)
    assert (both.end, both.withdrawn) == (End.HOLD, True)


@pytest.mark.parametrize("changed", [{"step": 14}, {"step": None, "save": None}])
def test_a_trainer_that_made_a_step_had_read_its_save(changed: dict[str, Any]) -> None:
    assert found(fault(**changed), origin=Origin.CHECKPOINT) == Diagnosis(charge=Charge.USER)


@pytest.mark.parametrize(
    ("cause", "after", "charge"),
    [
        ("Evicted for memory", 600.0, Charge.USER),
        ("Evicted for memory", 2 * HOUR, Charge.INFRASTRUCTURE),
        ("Evicted for ephemeral-storage", 600.0, Charge.INFRASTRUCTURE),
    ],
)
def test_the_same_cause_of_eviction_twice_within_an_hour_is_not_free(
    cause: str, after: float, charge: Charge
) -> None:
    first = fault(alike="Evicted for memory", charge="infrastructure", started=False)
    again = fault(alike=cause, charge="infrastructure", at=1000.0 + after)
    assert found(first).charge == Charge.INFRASTRUCTURE
    assert found(first, again).charge == charge


def test_every_origin_says_what_follows() -> None:
    assert set(WHAT_FOLLOWS) == set(Origin)
