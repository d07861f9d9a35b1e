"""`rules.resume.choose`: never a wrong save, never step 0 by accident."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_api.reasons import Reason
from rtj_api.rules.resume import Chosen, Facts, NoChoice, choose
from rtj_api.wire import Candidate


def save(step: int, *, durable: bool = True, **fields: Any) -> Candidate:
    return Candidate(
        name=f"s{step}",
        step=step,
        durable=durable,
        **{"needs": [0, 1], "full_state": True} | fields,
    )


def facts(*candidates: Candidate, **fields: Any) -> Facts:
    base: dict[str, Any] = {
        "run": "ns/gpt",
        "world_size": 2,
        "candidates": candidates,
        "listed": True,
        "pinned": {},
        "urls": {0: "http://a:1", 1: "http://b:1"},
    }
    return Facts(**base | fields)


BOTH = {0: {"s8"}, 1: {"s8"}}

CHOSEN = {
    "newest durable": (facts(save(8), save(4)), "s8"),
    "newest is invalid": (facts(save(8, invalid="CheckpointCorrupt"), save(4)), "s4"),
    "two are invalid": (facts(save(9, invalid="x"), save(8, invalid="y"), save(4)), "s4"),
    "weights only is passed over": (facts(save(8, full_state=False), save(4)), "s4"),
    "unknown state counts as full": (facts(save(8, full_state=None), save(4)), "s8"),
    "not durable, all its parts are pinned": (
        facts(save(8, durable=False), save(4), pinned=BOTH),
        "s8",
    ),
    "not durable, each has its share": (
        facts(save(8, durable=False), save(4), pinned={0: set(), 1: set()}, shares=BOTH),
        "s8",
    ),
    "not durable, a part is gone": (
        facts(save(8, durable=False), save(4), pinned={0: {"s8"}}),
        "s4",
    ),
    "not durable, only rank 0 wrote it": (
        facts(save(8, durable=False, needs=[0]), save(4), pinned={0: {"s8"}, 1: set()}),
        "s8",
    ),
    "not durable, nobody knows who wrote it": (
        facts(save(8, durable=False, needs=[]), save(4), pinned={}),
        "s4",
    ),
    "store silent, all have the newest durable": (
        facts(save(8), listed=False, pinned=BOTH, last_durable_step=8, ever_durable=True),
        "s8",
    ),
    "store silent, all have a later one": (
        facts(
            save(8, durable=False),
            listed=False,
            pinned=BOTH,
            last_durable_step=4,
            last_durable_name="s4",
            ever_durable=True,
        ),
        "s8",
    ),
    "store silent, steps unknown, known by name": (
        facts(
            Candidate(name="a", durable=True, needs=[0]),
            listed=False,
            pinned={0: {"a"}, 1: {"a"}},
            last_durable_name="a",
            ever_durable=True,
        ),
        "a",
    ),
}


@pytest.mark.parametrize(("given", "name"), CHOSEN.values(), ids=CHOSEN.keys())
def test_the_newest_save_that_all_can_load(given: Facts, name: str) -> None:
    choice = choose(given)
    assert isinstance(choice, Chosen), choice
    assert choice.resume.name == name
    assert not choice.resume.scratch
    names = [c.name for c in given.candidates]
    assert [p.name for p in choice.passed_over] == names[: names.index(name)]


HELD = {
    "all invalid": (facts(save(8, invalid="x"), save(4, invalid="y")), Reason.NO_VALID_CHECKPOINT),
    "the store is empty though a step was durable": (
        facts(ever_durable=True),
        Reason.NO_VALID_CHECKPOINT,
    ),
    "only weights": (facts(save(8, full_state=False)), Reason.NO_VALID_CHECKPOINT),
    "an invalid save of a new run": (
        facts(save(8, durable=False, invalid="CheckpointTorn")),
        Reason.NO_VALID_CHECKPOINT,
    ),
    "store silent, nothing known": (facts(listed=False), Reason.STORE_UNREACHABLE),
    "store silent, durable but not everywhere": (
        facts(save(8), listed=False, pinned={0: {"s8"}, 1: set()}, last_durable_step=8),
        Reason.STORE_UNREACHABLE,
    ),
    "store silent, all have only an older one": (
        facts(save(8), listed=False, pinned=BOTH, last_durable_step=12, ever_durable=True),
        Reason.STORE_UNREACHABLE,
    ),
    "store silent, steps unknown and not the last durable": (
        facts(
            Candidate(name="a", durable=True, needs=[0]),
            listed=False,
            pinned={0: {"a"}, 1: {"a"}},
            last_durable_name="b",
            ever_durable=True,
        ),
        Reason.STORE_UNREACHABLE,
    ),
    "store silent, a fresh start allowed": (
        facts(listed=False, allow_scratch=True),
        Reason.STORE_UNREACHABLE,
    ),
}


@pytest.mark.parametrize(("given", "reason"), HELD.values(), ids=HELD.keys())
def test_otherwise_it_holds_and_says_what_to_do(given: Facts, reason: Reason) -> None:
    choice = choose(given)
    assert isinstance(choice, NoChoice), choice
    assert choice.reason == reason
    assert "check" in choice.message.lower() or "allow-scratch" in choice.message


SCRATCH = {
    "a new run": facts(),
    "a first save that died with its pod": facts(save(4, durable=False)),
    "all invalid, allowed": facts(save(8, invalid="x"), allow_scratch=True),
    "empty store, allowed": facts(ever_durable=True, allow_scratch=True),
}


@pytest.mark.parametrize("given", SCRATCH.values(), ids=SCRATCH.keys())
def test_step_zero_only_by_right(given: Facts) -> None:
    choice = choose(given)
    assert isinstance(choice, Chosen), choice
    assert choice.resume.scratch


FOR_NOW = ["WorldSizeRefused", "RequiredKeyMissing", "CheckpointArchived"]


@pytest.mark.parametrize("reason", FOR_NOW)
def test_what_is_refused_for_now_is_left_behind_by_a_persons_word_alone(reason: str) -> None:
    saves = (save(8, invalid=reason, invalid_message="so it is"), save(4, invalid="x"))
    held = choose(facts(*saves, allow_scratch=True))
    assert isinstance(held, NoChoice), held
    assert held.reason == Reason.NO_VALID_CHECKPOINT
    for words in ("s8 (step 8)", "StartFromScratch does not apply", "allow-scratch"):
        assert words in held.message
    asked = choose(facts(*saves, allow_scratch=True, scratch_asked=True))
    assert isinstance(asked, Chosen), asked
    assert asked.resume.scratch


def test_peers_are_those_who_hold_it() -> None:
    choice = choose(facts(save(8, durable=False), pinned=BOTH))
    assert isinstance(choice, Chosen)
    assert choice.resume.peers == ["http://a:1", "http://b:1"]
    assert choice.resume.durable is False


def test_at_most_64_peers_are_named() -> None:
    world = 200
    given = facts(
        save(8, needs=[0]),
        world_size=world,
        pinned={r: {"s8"} for r in range(world)},
        urls={r: f"http://{r}" for r in range(world)},
    )
    choice = choose(given)
    assert isinstance(choice, Chosen)
    assert len(choice.resume.peers) == 64


def test_shares_are_at_hand_nowhere_and_all_who_wrote_are_asked() -> None:
    ranks = range(100)
    found = choose(
        facts(
            save(8, durable=False, needs=list(ranks)),
            world_size=100,
            pinned={99: {"s8"}},
            shares={rank: {"s8"} for rank in ranks},
            urls={rank: f"http://{rank}:1" for rank in ranks},
        )
    )
    assert isinstance(found, Chosen)
    assert found.resume.peers == [f"http://{rank}:1" for rank in ranks], "one missing: no list"
    silent = choose(facts(save(8), listed=False, shares=BOTH, pinned={0: set(), 1: set()}))
    assert isinstance(silent, NoChoice), "a share is no copy that is local everywhere"
