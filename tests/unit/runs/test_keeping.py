"""Which saves retention keeps: the pure rule, case by case."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from kit.histories import a_fence, a_history, a_save
from rtj_api.reasons import Reason
from rtj_api.wire import KeepRules, SidecarConfig
from rtj_sidecar.runs.keeping import Best, Keep, Why, keep_of, kept, metric_of, to_archive, to_mark
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import MarkKind, MarkRecord, Parent


def steps_kept(history: Any, keep: Keep, *, in_use: tuple[str, ...] = ()) -> list[int | None]:
    why = kept(history, keep=keep, in_use=in_use)
    return [history.manifests[s].step for s, reason in reversed(why.items()) if reason is not None]


def line(*steps: int, **more: Any) -> Any:
    return a_history([a_save(1, n, step, **more) for n, step in enumerate(steps, 1)])


def test_everything_is_kept_unless_a_number_is_given() -> None:
    assert steps_kept(line(1, 2, 3), Keep(every=2, thin=True)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("last", "left"), [(1, [50]), (2, [40, 50]), (0, [50]), (9, [10, 20, 30, 40, 50])]
)
def test_the_newest(last: int, left: list[int]) -> None:
    assert steps_kept(line(10, 20, 30, 40, 50), Keep(last=last)) == left


def test_only_proved_full_saves_count_and_what_lies_between_stays() -> None:
    saves = [
        a_save(1, 1, 10),
        a_save(1, 2, 20),
        a_save(1, 3, 30, status="Settled"),
        a_save(1, 4, 40, full_state=False),
    ]
    assert steps_kept(a_history(saves), Keep(last=1)) == [20, 30, 40]
    none_proved = a_history([a_save(1, n, n, status="Settled") for n in range(1, 4)])
    assert steps_kept(none_proved, Keep(last=1)) == [1, 2, 3], "the last valid one is never lost"


def test_what_is_in_use_pinned_or_a_beginning_stays() -> None:
    saves = [a_save(1, n, 10 * n) for n in range(1, 6)]
    saves += [a_save(2, 1, 60)]
    history = a_history(
        saves,
        fences=[a_fence(1, Parent(scratch=True)), a_fence(2, Parent(name="f1-n5-s50", step=50))],
        marks={
            SaveId(1, 1): [MarkKind.PINNED],
            SaveId(1, 2): [MarkKind.PINNED, MarkKind.UNPINNED],
            SaveId(1, 3): [MarkKind.PINNED, MarkKind.UNPINNED, MarkKind.PINNED],
        },
    )
    why = kept(history, keep=Keep(last=1), in_use=["f1-n4-s40"])
    assert {str(save): reason for save, reason in why.items()} == {
        "f2-n1": Why.LAST,
        "f1-n5": Why.PARENT,
        "f1-n4": Why.IN_USE,
        "f1-n3": Why.PINNED,
        "f1-n2": None,
        "f1-n1": Why.PINNED,
    }
    assert [str(s) for s in to_mark(history, keep=Keep(last=1), in_use=["f1-n4-s40"])] == ["f1-n2"]


def test_condemned_and_branches_are_nobodys_to_remove() -> None:
    history = a_history(
        [a_save(1, n, 10 * n) for n in range(1, 5)],
        marks={SaveId(1, 2): [MarkKind.INVALID], SaveId(1, 3): [MarkKind.INVALID, MarkKind.GOOD]},
    )
    assert [str(save) for save in to_mark(history, keep=Keep(last=1), in_use=[])] == [
        "f1-n1",
        "f1-n3",
    ]


@pytest.mark.parametrize(
    ("every", "steps", "left"),
    [
        (100, (50, 100, 150, 200, 250), [100, 200, 250]),
        (100, (30, 90, 150, 210, 270, 330), [150, 210, 330]),  # the first at or after each
        (1000, (50, 100, 150), [150]),
    ],
)
def test_the_first_of_every_so_many_steps(every: int, steps: Any, left: list[int]) -> None:
    assert steps_kept(line(*steps), Keep(last=1, every=every)) == left


def test_the_best_by_a_metric() -> None:
    losses = [0.5, 0.2, math.nan, None, 0.2, 0.9]
    saves = [a_save(1, n, 10 * n, loss=loss) for n, loss in enumerate(losses, 1)]
    history = a_history(saves)
    assert steps_kept(history, Keep(last=1, best=Best())) == [20, 60], "of equal ones the older"
    assert steps_kept(history, Keep(last=1, best=Best(count=3))) == [10, 20, 50, 60]
    assert steps_kept(history, Keep(last=1, best=Best(highest=True, count=2))) == [10, 60]
    named = [
        a_save(1, n, n, facts={"metrics": {"val_acc": acc}})
        for n, acc in enumerate([0.1, 0.0, 0.9, 0.3], 1)
    ]
    assert steps_kept(a_history(named), Keep(last=1, best=Best("val_acc", highest=True))) == [3, 4]
    assert metric_of(named[1], "val_acc") == 0.0
    assert metric_of(named[1], "loss") is None


def test_older_ones_survive_ever_sparser() -> None:
    left = steps_kept(line(*range(1, 101)), Keep(last=3, thin=True))
    assert left[0] == 1
    assert left[-3:] == [98, 99, 100]
    assert len(left) < 16
    ages = [100 - step for step in left]
    for age, younger in pairwise(ages[:-3]):
        assert age - younger <= younger + 1, "a gap is no wider than its age"


def test_without_an_order_nothing_survives_by_its_age() -> None:
    restarting = [a_save(1, n, n % 3, epoch=n // 3) for n in range(1, 31)]
    left = kept(a_history(restarting), keep=Keep(last=2, thin=True), in_use=[])
    assert sum(reason is Why.THINNED for reason in left.values()) >= 3, "by epochs"
    unknown = a_history([a_save(1, n, None) for n in range(1, 9)])
    assert (
        len([r for r in kept(unknown, keep=Keep(last=2, thin=True), in_use=[]).values() if r]) == 2
    )


def test_what_a_kept_save_brings_back_is_kept() -> None:
    best = {"carried": [{"path": "best.pt", "fence": 1, "n": 1, "step": 10}]}
    old = {"carried": [{"path": "x.pt", "fence": 1, "n": 2, "step": 20}]}
    saves = [a_save(1, 1, 10, facts=old), a_save(1, 2, 20), a_save(1, 3, 30, facts=best)]
    # f1-n1 is newer than nothing: what it carries can only be older.
    assert steps_kept(a_history(saves), Keep(last=1)) == [10, 30]


def archived(history: Any, keep: Keep, **more: Any) -> list[str]:
    return [str(s) for s in to_archive(history, keep=keep, in_use=(), now=1000.0, **more)]


def test_old_kept_saves_go_to_the_archive_and_never_the_newest() -> None:
    saves = [a_save(1, n, 10 * n, at=100.0 * n) for n in range(1, 10)]
    keep = Keep(last=2, every=10, archive_after=500)
    assert archived(a_history(saves), keep) == ["f1-n1", "f1-n2", "f1-n3", "f1-n4", "f1-n5"]
    assert archived(a_history(saves), Keep(archive_after=0.0))[-1] == "f1-n8", "not the newest"
    done = MarkRecord(
        kind=MarkKind.ARCHIVED, reason=Reason.CHECKPOINT_ARCHIVED, message="", marked_at=0
    )
    begun = done.model_copy(update={"reason": str(Reason.CHECKPOINT_ARCHIVING)})
    marks = {
        SaveId(1, 1): [begun, done],
        SaveId(1, 2): [begun],
        SaveId(1, 3): [MarkKind.PINNED],
        SaveId(1, 4): [MarkKind.INVALID],
    }
    assert archived(a_history(saves, marks=marks), keep) == ["f1-n2", "f1-n5"]
    assert archived(a_history(saves), Keep(last=2, every=10)) == []


def test_the_rules_of_a_job_as_its_sidecar_reads_them() -> None:
    base = SidecarConfig(
        cluster_uid="c",
        job_uid="j",
        namespace="n",
        job="g",
        rank=0,
        made_in=1,
        framework="none",
        procs_per_replica=1,
        run_id="r",
        path="/c",
    )
    assert keep_of(base) == Keep()
    assert keep_of(base.model_copy(update={"keeps_in_directory": True})).last == 5
    rules = KeepRules(every=5, best_metric="acc", best_highest=True, best_count=2, thin=True)
    told = base.model_copy(update={"keep_last": 3, "keep": rules})
    assert keep_of(told) == Keep(last=3, every=5, best=Best("acc", True, 2), thin=True)
