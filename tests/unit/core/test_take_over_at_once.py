"""A spare that has the whole save takes a lost rank by one directive; else by the ordinary way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from kit.decisions import status_of
from kit.observations import applied, pod_of, with_pod, with_report
from kit.scenarios import trains
from kit.scenarios_of_spares import spares_wait
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api.reasons import Reason
from rtj_api.wire import Candidate, Phase, Report
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import JobSpec, Observed
from rtj_operator.core.plan import PatchDirective


def whole() -> Observed:
    """Two ranks with a durable save, and a spare that has fetched it."""
    operator = Operator(
        World(spec=JobSpec(replicas=2, run_id="ns/gpt", template_hash="h1", spares=1))
    )
    trains(operator, step=10)
    spares_wait(operator)
    return operator.world.observe()


def seen() -> Observed:
    """The same once rank 1's pod is gone."""
    return without(whole(), 1)


def without(observed: Observed, rank: int) -> Observed:
    lost = pod_of(observed, rank)
    return replace(observed, pods=tuple(p for p in observed.pods if p.uid != lost.uid))


def of_spare(observed: Observed, change: Callable[[Report], Report]) -> Observed:
    (spare,) = (p for p in observed.pods if p.spare is not None)
    view = observed.reports[spare.uid]
    assert view.report is not None
    told = replace(view, report=change(view.report))
    return replace(observed, reports={**observed.reports, spare.uid: told})


def standby(observed: Observed, **fields: object) -> Observed:
    def change(report: Report) -> Report:
        assert report.standby is not None
        return report.model_copy(update={"standby": report.standby.model_copy(update=fields)})

    return of_spare(observed, change)


def is_fast(observed: Observed) -> bool:
    plan = decide(observed)
    status = status_of(plan)
    assert status.current is not None
    assert status.current.taken_over
    assert plan.evidence["fast"] is status.is_started
    return status.is_started


def test_it_is_chosen_and_counted_in_the_decision_and_all_are_told_once() -> None:
    before = seen()
    plan = decide(before)
    status = status_of(plan)
    assert status.resume is not None
    assert (status.resume.attempt, status.resume.name) == (2, "f1-n12-s12")
    assert status.resume.fast
    assert (status.starts, status.restarts) == (2, 1)
    assert [n.reason for n in plan.notes] == [
        Reason.POD_DELETED,
        Reason.RESUMED,
        Reason.SPARE_TOOK_OVER,
    ]
    told = [a for a in decide(applied(before, plan)).actions if isinstance(a, PatchDirective)]
    assert [(a.directive.rank, a.directive.phase, a.directive.fast) for a in told] == [
        (1, Phase.GO, True),
        (0, Phase.GO, True),
    ], "the spare first, for it has the longest way"
    assert {a.directive.resume.name for a in told if a.directive.resume} == {"f1-n12-s12"}


@pytest.mark.parametrize(
    "fields",
    [{"name": None}, {"name": "f1-n4-s4"}, {"whole": False}],
    ids=["nothing fetched", "an older save", "each rank has files of its own"],
)
def test_not_where_the_spare_has_a_byte_to_move(fields: dict[str, object]) -> None:
    assert is_fast(seen())
    assert not is_fast(standby(seen(), **fields))


def test_not_where_a_survivor_has_not_pinned_the_save() -> None:
    assert not is_fast(
        with_report(seen(), 0, lambda r: r.model_copy(update={"pinned": ["f1-n4-s4"]}))
    )


def test_not_where_rank_0_holds_no_fence() -> None:
    assert not is_fast(with_report(seen(), 0, lambda r: r.model_copy(update={"fence": None})))


def test_not_while_a_newer_save_may_become_durable() -> None:
    newer = Candidate(name="f1-n16-s16", step=16, durable=False, needs=[0, 1])

    def lists(report: Report) -> Report:
        return report.model_copy(update={"candidates": [newer, *report.candidates]})

    def ships(report: Report) -> Report:
        views = report.checkpoint.model_copy(update={"pending_saves": 1})
        return report.model_copy(update={"checkpoint": views})

    def looks(report: Report) -> Report:
        return report.model_copy(update={"settling": True})

    for change in (lists, ships, looks):
        assert not is_fast(with_report(seen(), 0, change))


def test_not_for_rank_0_whose_spare_has_to_claim_the_fence() -> None:
    assert not is_fast(without(whole(), 0))


def test_not_in_a_directory_that_several_pods_write() -> None:
    observed = seen()
    job = observed.job
    assert job is not None
    assert job.spec is not None
    shared = replace(job.spec, shared_directory=True)
    assert not is_fast(replace(observed, job=replace(job, spec=shared)))


def test_not_while_the_lost_pod_may_still_save() -> None:
    observed = whole()
    assert not is_fast(with_pod(observed, 1, deleting_since=observed.now - 1))
