"""Which save is named next, and which never."""

from __future__ import annotations

from dataclasses import replace

from rtj_sidecar.latecomers import Latecomers, known_of
from rtj_sidecar.messages import SeenSave
from rtj_sidecar.naming import Heard, groups, next_naming
from rtj_sidecar.runs.records import SaveFacts
from rtj_sidecar.unfinished import Told


def heard(
    rank: int,
    step: int | None,
    *,
    arrival: int,
    root: str | None = None,
    at: float = 0.0,
    attempt: int = 1,
    seen_at: float = 0.0,
) -> Heard:
    root = root or f"ckpt_{step}"
    facts = SaveFacts(root_key=root, layout="torch", step=step)
    save = SeenSave(
        fingerprint=f"{rank}-{root}-{arrival}",
        attempt=attempt,
        ordinal=arrival,
        facts=facts,
        paths=[root],
        bytes=1,
        seen_at=seen_at,
    )
    return Heard(rank, save, arrival, at)


def name(found: list[Heard], **options: object) -> object:
    defaults = {"open_ships": 0, "usual": {0}, "world_size": 2, "now": 0.0, "grace": 2.0}
    return next_naming(heard=found, **{**defaults, **options})  # type: ignore[arg-type]


def test_ranks_are_joined_by_root_or_by_step() -> None:
    found = groups(
        [
            heard(0, 5, arrival=1),
            heard(1, 5, arrival=2, root="ckpt_5_rank1"),
            heard(0, 10, arrival=3),
            heard(1, None, arrival=4, root="x"),
            heard(0, None, arrival=5, root="x"),
        ]
    )
    assert [sorted(group.by_rank) for group in found] == [[0, 1], [0], [0, 1]]


def test_a_path_used_twice_is_two_saves() -> None:
    twice = [heard(0, None, arrival=1, root="last.pt"), heard(0, None, arrival=2, root="last.pt")]
    assert len(groups(twice)) == 2


def test_all_ranks_are_waited_for_at_first_and_the_usual_ones_later() -> None:
    first = [heard(0, 5, arrival=1)]
    waiting = name(first, usual=set())
    assert (waiting.name, waiting.wake_at) == (None, 2.0)  # type: ignore[attr-defined]
    assert name(first, usual=set(), now=2.0).name is not None  # type: ignore[attr-defined]
    assert name(first, usual=set(), final=True).name is not None  # type: ignore[attr-defined]
    assert name(first, usual={0}).name is not None  # type: ignore[attr-defined]
    assert name(first, usual={0, 1}).name is None  # type: ignore[attr-defined]


def test_in_order_while_the_store_keeps_up() -> None:
    found = name([heard(0, 5, arrival=1), heard(0, 10, arrival=2)])
    assert found.name.lead.facts.step == 5  # type: ignore[attr-defined]
    assert found.skipped == ()  # type: ignore[attr-defined]


def test_under_back_pressure_only_the_newest() -> None:
    three = [heard(0, step, arrival=step) for step in (5, 10, 15)]
    found = name(three)
    assert found.name.lead.facts.step == 15  # type: ignore[attr-defined]
    assert [g.lead.facts.step for g in found.skipped] == [5, 10]  # type: ignore[attr-defined]
    assert name(three, open_ships=2).name is None  # type: ignore[attr-defined]
    found = name(three[:2], open_ships=1)
    assert found.name.lead.facts.step == 10  # type: ignore[attr-defined]


def test_an_older_save_still_waited_for_is_skipped_when_a_newer_is_named() -> None:
    found = name(
        [heard(1, 5, arrival=1, at=9.0), heard(0, 10, arrival=2), heard(1, 10, arrival=3)],
        usual={0, 1},
        now=9.5,
    )
    assert found.name.lead.facts.step == 10  # type: ignore[attr-defined]
    assert [g.lead.facts.step for g in found.skipped] == [5]  # type: ignore[attr-defined]


def test_saves_of_two_attempts_are_never_one() -> None:
    found = groups([heard(0, 40, arrival=1), heard(1, 40, arrival=2, attempt=2)])
    assert [sorted(group.by_rank) for group in found] == [[0], [1]]


def test_what_finished_behind_a_slow_line_waits_for_it() -> None:
    """It would reach that line only after the save before, and a newer one may come meanwhile."""
    later = [heard(0, 20, arrival=2, at=5.0), heard(0, 30, arrival=3, at=6.0)]
    waiting = name(later, open_ships=1, lagging_since=4.0, now=9.0)
    assert waiting.name is None  # type: ignore[attr-defined]
    found = name(later, open_ships=1, lagging_since=None, now=9.0)
    assert found.name.lead.facts.step == 30  # type: ignore[attr-defined]


def test_two_that_finished_together_go_together() -> None:
    both = [heard(0, 20, arrival=2, at=4.0)]
    assert name(both, open_ships=1, lagging_since=4.0).name is not None  # type: ignore[attr-defined]
    half = [heard(0, 20, arrival=2, at=4.0), heard(1, 20, arrival=3, at=5.0)]
    assert name(half, open_ships=1, lagging_since=4.5).name is None  # type: ignore[attr-defined]


def test_behind_a_slow_line_no_newer_save_gets_its_name_before_an_older_one() -> None:
    """One rank told of the older save last: named after the newer it would be the run's newest."""
    older = [heard(0, 20, arrival=2, at=1.0), heard(1, 20, arrival=5, at=5.0)]
    newer = [heard(0, 30, arrival=3, at=2.0), heard(1, 30, arrival=4, at=3.0)]
    told, options = [*older, *newer], {"open_ships": 1, "usual": {0, 1}, "now": 9.0}
    assert name(told, lagging_since=4.0, **options).name is None  # type: ignore[attr-defined]
    found = name(told, lagging_since=None, **{**options, "open_ships": 0})
    assert found.name.lead.facts.step == 20  # type: ignore[attr-defined]


def test_the_last_saves_of_a_trainer_wait_for_nobody() -> None:
    last = [heard(0, 20, arrival=2, at=5.0)]
    found = name(last, open_ships=1, lagging_since=4.0, final=True)
    assert found.name is not None  # type: ignore[attr-defined]


def test_weights_alone_do_not_push_aside_what_can_be_resumed_from() -> None:
    three = [heard(0, step, arrival=step) for step in (5, 10, 15)]
    facts = three[2].save.facts.model_copy(update={"full_state": False})
    three[2] = Heard(0, three[2].save.model_copy(update={"facts": facts}), 15, 0.0)
    found = name(three)
    assert found.name.lead.facts.step == 10  # type: ignore[attr-defined]
    assert [g.lead.facts.step for g in found.skipped] == [5]  # type: ignore[attr-defined]


def test_at_first_a_silent_rank_is_waited_for_until_it_says_that_it_has_nothing() -> None:
    asked = [replace(heard(0, 5, arrival=1), question=3)]
    options = {"usual": set(), "now": 2.0, "longest": 30.0}
    silent = name(asked, told={0: Told(3)}, **options)
    assert (silent.name, silent.wake_at) == (None, 30.0)  # type: ignore[attr-defined]
    before = name(asked, told={0: Told(3), 1: Told(2)}, **options)
    assert before.name is None  # type: ignore[attr-defined]
    nothing = name(asked, told={0: Told(3), 1: Told(3)}, **options)
    assert nothing.name is not None  # type: ignore[attr-defined]
    at_last = name(asked, told={}, **{**options, "now": 30.0})
    assert at_last.name is not None  # type: ignore[attr-defined]


def model(rank: int, *, seen_at: float, arrival: int) -> Heard:
    return heard(rank, None, arrival=arrival, root="model.pt", seen_at=seen_at)


def test_ranks_that_overwrite_one_name_at_their_own_pace_are_paired_by_time() -> None:
    """Rank 0 every 10 s, rank 1 every 30 s: nothing in the files tells which belong together."""
    often = [model(0, seen_at=30.0 + 10 * n, arrival=n) for n in range(4)]
    found = groups([*often, model(1, seen_at=60.3, arrival=9)])
    assert [(g.facts.step, sorted(g.by_rank), g.lead.seen_at) for g in found] == [
        (None, [0], 30.0),
        (None, [0], 40.0),
        (None, [0], 50.0),
        (None, [0, 1], 60.0),
    ]
    early = groups([*often[:3], model(1, seen_at=60.3, arrival=9)])  # rank 0's is not told yet
    assert [sorted(g.by_rank) for g in early] == [[0], [0], [0], [1]]
    late = groups([*often, model(1, seen_at=30.4, arrival=8), model(1, seen_at=40.3, arrival=9)])
    assert [sorted(g.by_rank) for g in late] == [[0, 1], [0, 1], [0], [0]]


def test_a_rank_that_overwrites_one_name_less_often_spoils_no_save_of_the_others() -> None:
    late = Latecomers()
    for n, at in enumerate((10.0, 20.0), start=1):
        (group,) = groups([model(0, seen_at=at, arrival=n)])
        late.named(known_of(group, name=f"f1-n{n}", was_guess=False))
    assert late.hear(1, model(1, seen_at=30.2, arrival=5).save, attempt=1) is None
    told = late.hear(1, model(1, seen_at=20.3, arrival=6).save, attempt=1)
    assert told is not None
    assert told.name == "f1-n2"
