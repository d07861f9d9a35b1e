"""Who is waited for before a save gets its name."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from rtj_api.wire import Directive, Phase
from rtj_sidecar import gangword
from rtj_sidecar.gangword import GangWord
from rtj_sidecar.messages import Seen, SeenSave
from rtj_sidecar.naming import Heard, groups
from rtj_sidecar.runs.records import SaveFacts, ShipRecord


def said(*, rank: int, made_in: int | None) -> Seen:
    facts = SaveFacts(root_key="ckpt_5.pt", layout="torch", step=5, status="Verified")
    save = SeenSave(
        fingerprint=f"{rank}",
        attempt=made_in or 0,
        ordinal=1,
        facts=facts,
        paths=["ckpt_5.pt"],
        bytes=1,
        seen_at=1.0,
    )
    saves = [] if made_in is None else [save]
    return Seen(job_uid="job-1", rank=rank, attempt=2, saves=saves)


def a_word(*, world_size: int | None = None) -> GangWord:
    site = SimpleNamespace(config=SimpleNamespace(job_uid="job-1", rank=0))
    told = SimpleNamespace(world_size=world_size) if world_size is not None else None
    return GangWord(SimpleNamespace(site=site, attempt=2, directive=told))  # type: ignore[arg-type]


def test_a_rank_whose_word_came_too_late_once_is_waited_for_from_then_on() -> None:
    word = a_word()
    word.hear(said(rank=0, made_in=2))
    assert word.waited_for == frozenset()  # nothing is durable yet: all are waited for, a while
    word.usual = frozenset({0})  # the first save was named, and committed, without rank 1
    word.hear(said(rank=1, made_in=2))
    assert word.waited_for == {0, 1}


@pytest.mark.parametrize(
    ("of", "waited_for"), [(3, {0, 1, 2}), (None, {0, 1, 2}), (2, set()), (4, set())]
)
def test_a_gang_of_another_size_says_nothing_of_who_writes_in_this_one(
    of: int | None, waited_for: set[int]
) -> None:
    """After a shrink a rank that is gone would be waited for; after a growth new ones would not."""
    word = a_word(world_size=3)
    word.usual = frozenset({0, 1})
    word.expect_as_usual([0, 1, 2], of=of)
    assert word.waited_for == waited_for


def test_what_was_left_by_an_older_attempt_makes_no_writer() -> None:
    word = a_word()
    word.usual = frozenset({0})
    word.hear(said(rank=1, made_in=1))
    word.hear(said(rank=2, made_in=None))
    assert word.waited_for == {0}
    word.hear(said(rank=1, made_in=2))
    word.forget_ends()  # another trainer begins
    assert word.waited_for == {0}


def test_at_a_stop_a_rank_without_a_pod_is_gone_whatever_it_said_in_the_attempt_before() -> None:
    word = a_word()
    word.hear(said(rank=1, made_in=2))
    stop = Directive(
        jobUID="job-1",
        podUID="p",
        rank=0,
        attempt=3,
        seq=1,
        phase=Phase.STOP,
        world_size=2,
        coordinator="127.0.0.1",
        replaced=[1],
    )
    word._at.attempt, word._at.directive = 3, stop  # type: ignore[misc]
    ship = ShipRecord(
        fence=1,
        n=2,
        name="f1-n2-s5",
        root_key="ckpt_5.pt",
        layout="torch",
        expected=[0, 1],
        world_size=2,
        named_at=0.0,
    )
    word._at.fence = 1  # type: ignore[misc]
    assert word.without(ship) == [1]


@pytest.mark.parametrize("wrong_by", [-300.0, 300.0])
def test_a_pod_whose_clock_is_wrong_pairs_its_share_with_no_other_save(
    wrong_by: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One name for every save, no step in it, and a save each five minutes."""
    word, now = a_word(), 1000.0
    heard: list[Heard] = []

    def tell(rank: int, *, seen_at: float, on_the_way: float = 0.0, clock: float = 0.0) -> None:
        facts = SaveFacts(root_key="model.pt", layout="torch")
        save = said(rank=rank, made_in=2).saves[0]
        made = save.model_copy(update={"facts": facts, "seen_at": seen_at + clock})
        words = Seen(job_uid="job-1", rank=rank, attempt=2, saves=[made], told_at=now + clock)
        monkeypatch.setattr(gangword.time, "time", lambda: now + on_the_way)
        assert word.hear(words)
        heard.append(Heard(rank, word.by_own_clock(rank, made), len(heard), 0.0))

    tell(0, seen_at=700.0)
    tell(0, seen_at=1000.0)
    tell(1, seen_at=1000.0, clock=wrong_by)
    assert [sorted(group.by_rank) for group in groups(heard)] == [[0], [0, 1]]
    tell(1, seen_at=1000.0, clock=wrong_by, on_the_way=8.0)
    assert heard[-1].save.seen_at == 1000.0, "the quickest word tells the clock"


def test_a_word_that_was_on_its_way_for_a_while_says_nothing_of_a_clock() -> None:
    word = a_word()
    one = said(rank=1, made_in=2).model_copy(update={"told_at": time.time() - 3.0})
    word.hear(one)
    assert word.by_own_clock(1, one.saves[0]).seen_at == one.saves[0].seen_at
