"""Spares: when one takes a rank, which it is, when there are none, and who gives way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.decisions import status_of
from kit.observations import (
    applied,
    later,
    new_job,
    pod_of,
    running,
    started,
    with_job,
    with_pod,
    with_report,
    with_view,
)
from kit.scenarios_of_spares import SPARES
from rtj_api.contract import NO_RANK
from rtj_api.reasons import Reason
from rtj_api.status import RestartKind, SpareStatus, StandIn, Status
from rtj_api.wire import Phase, StandbyView
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import ContainerView, Observed, Rejection
from rtj_operator.core.plan import CreatePod, CreateSpare, DeletePod, PatchDirective, Plan


def seen(*, spares: int = 1, **spec: Any) -> Observed:
    """Two ranks that train, and spares that are ready."""
    return running(spares=spares, **spec)


def lost(observed: Observed, rank: int = 1) -> Observed:
    return with_pod(observed, rank, deleting_since=observed.now - 1)


def spec_of(observed: Observed, **fields: Any) -> Observed:
    job = observed.job
    assert job is not None
    assert job.spec is not None
    return with_job(observed, spec=replace(job.spec, **fields), generation=job.generation + 1)


def removed(plan: Plan) -> list[str]:
    return [a.name for a in plan.actions if isinstance(a, DeletePod)]


# --- taking a rank --------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_a_spare_takes_the_lost_rank_in_the_decision_itself(rank: int) -> None:
    before = lost(seen(), rank)
    plan = decide(before)
    status = status_of(plan)
    assert status.stand_ins == [StandIn(rank=rank, spare=0, made_in=1)]
    assert status.current is not None
    assert (status.current.kind, status.current.replaced) == (RestartKind.REPLACE, [rank])
    assert status.current.taken_over == [rank]
    assert status.current.scheduled_at is not None, "no scheduler is asked"
    assert [n.reason for n in plan.notes] == [Reason.POD_DELETED, Reason.SPARE_TOOK_OVER]
    after = applied(before, plan)
    # Rank 0's fence waits until the old pod has drained.
    after = replace(after, pods=tuple(p for p in after.pods if p.rank != rank))
    actions = decide(after).actions
    assert not [a for a in actions if isinstance(a, CreatePod | CreateSpare)]
    told = [a for a in actions if isinstance(a, PatchDirective) and "-s0-" in a.pod]
    assert next(a for a in actions if isinstance(a, PatchDirective)) == told[0], "told first"
    assert [(a.directive.rank, a.directive.phase, a.labels_rank) for a in told] == [
        (rank, Phase.PREPARE, True)
    ]


def test_the_only_rank_of_a_job_is_taken_too() -> None:
    """All of it is lost, and still nobody waits for the scheduler."""
    before = lost(lost(seen(spares=2), 0), 1)
    status = status_of(decide(before))
    assert [(s.rank, s.spare) for s in status.stand_ins] == [(0, 0), (1, 1)]
    assert not [
        a for a in decide(applied(before, decide(before))).actions if isinstance(a, CreatePod)
    ]


def test_a_restart_in_place_takes_no_spare() -> None:
    observed = seen()
    crashed = with_report(
        observed,
        1,
        lambda r: r.model_copy(
            update={
                "phase": "Exited",
                "trainer": r.trainer.model_copy(
                    update={"state": "exited", "exit_code": 1, "ended_at": observed.now}
                ),
            }
        ),
    )
    status = status_of(decide(crashed))
    assert (status.attempt, status.stand_ins) == (2, [])


UNFIT: dict[str, dict[str, Any]] = {
    "it is ending": {"deleting_since": 1001.0},
    "it was evicted": {"phase": "Failed"},
    "it is to be evicted": {"disruption": "EvictionByEvictionAPI"},
    "its trainer's container waits": {"trainer": None},
    "its sidecar is down": {"sidecar": ContainerView(name="rtj-sidecar")},
    "it has no address": {"ip": None},
    "an older template": {"template_hash": "h0"},
}


@pytest.mark.parametrize("fields", UNFIT.values(), ids=UNFIT)
def test_a_spare_that_is_not_ready_is_not_waited_for(fields: dict[str, Any]) -> None:
    before = with_pod(lost(seen()), NO_RANK, **fields)
    status = status_of(decide(before))
    assert (status.attempt, status.stand_ins, status.placements) == (2, [], [1, 2])


SILENT: dict[str, dict[str, Any]] = {
    "never heard": {"report": None},
    "not any more": {"connected": False, "last_contact": 900.0},
}


@pytest.mark.parametrize("fields", SILENT.values(), ids=SILENT)
def test_a_spare_that_is_not_heard_is_not_waited_for(fields: dict[str, Any]) -> None:
    status = status_of(decide(with_view(lost(seen()), NO_RANK, **fields)))
    assert (status.attempt, status.stand_ins) == (2, [])


@pytest.mark.parametrize(
    "fields", [{"standby": None}, {"terminating": True}, {"supervisor_seen": False}]
)
def test_its_own_word_counts(fields: dict[str, Any]) -> None:
    before = with_report(lost(seen()), NO_RANK, lambda r: r.model_copy(update=fields))
    assert status_of(decide(before)).stand_ins == []


def test_a_spare_on_the_lost_node_is_lost_with_it() -> None:
    observed = seen()
    node = pod_of(observed, 1).node
    gone = {**observed.nodes, str(node): replace(observed.nodes[str(node)], exists=False)}
    before = replace(with_pod(observed, NO_RANK, node=node), nodes=gone)
    status = status_of(decide(before))
    assert (status.attempt, status.stand_ins) == (2, [])


def test_a_sidecar_of_an_older_version_is_told_and_not_made_again_and_again() -> None:
    older = with_report(seen(), NO_RANK, lambda r: r.model_copy(update={"standby": None}))
    plan = decide(older)
    assert removed(plan) == []
    told = status_of(plan).spares
    assert told is not None
    assert (told.ready, "spec.sidecar.image" in (told.message or "")) == (0, True)
    assert not decide(applied(older, plan)).actions


def test_a_spare_whose_node_was_given_notice_is_left_alone() -> None:
    observed = seen()
    node = str(pod_of(observed, NO_RANK).node)
    taints = ("cloud.google.com/impending-node-termination:NoSchedule",)
    noticed = {**observed.nodes, node: replace(observed.nodes[node], taints=taints)}
    status = status_of(decide(replace(lost(observed), nodes=noticed)))
    assert (status.attempt, status.stand_ins) == (2, [])


def test_the_spare_with_the_newest_save_goes_first() -> None:
    observed = seen(spares=2)
    newest = observed.job.status.checkpoint.last_durable_name if observed.job else None
    reports = dict(observed.reports)
    for pod in (p for p in observed.pods if p.spare is not None):
        view = reports[pod.uid]
        assert view.report is not None
        has = StandbyView(spare=pod.spare or 0, name=newest if pod.spare == 1 else None)
        told = view.report.model_copy(update={"standby": has})
        reports[pod.uid] = replace(view, report=told)
    status = status_of(decide(replace(lost(observed), reports=reports)))
    assert [(s.rank, s.spare) for s in status.stand_ins] == [(1, 1)]


# --- what an operator that died leaves ------------------------------------------------------------


def test_a_spare_that_vanished_before_it_was_told_raises_the_attempt() -> None:
    before = lost(seen())
    after = applied(before, decide(before))
    without = replace(after, pods=tuple(p for p in after.pods if p.spare is None))
    plan = decide(without)
    status = status_of(plan)
    assert (status.attempt, status.starts, status.stand_ins) == (3, 1, [])
    assert status.placements == [1, 3]


def test_a_pod_that_was_told_of_another_rank_is_lost_to_this_one() -> None:
    before = lost(seen())
    after = applied(before, decide(before))
    other = pod_of(after, 0).directive
    assert other is not None
    late = with_pod(after, NO_RANK, directive=other.model_copy(update={"rank": 0, "attempt": 2}))
    plan = decide(late)
    assert "plays rank 0 already" in plan.why
    assert status_of(plan).stand_ins == []


# --- which are there ------------------------------------------------------------------------------


def test_spares_are_made_once_the_whole_gang_trains() -> None:
    observed = spec_of(running(), spares=2)
    names = [a.name for a in decide(observed).actions if isinstance(a, CreateSpare)]
    assert names == ["gpt-s0-1-abcd", "gpt-s1-1-abcd"]
    refused = Rejection(code=403, message="exceeded quota: gpus", at=observed.now)
    again = replace(observed, rejections={"gpt-s0-1-abcd": refused})
    names = [a.name for a in decide(again).actions if isinstance(a, CreateSpare)]
    assert names == ["gpt-s1-1-abcd"], "the other waits"
    names = [a.name for a in decide(later(again, 20)).actions if isinstance(a, CreateSpare)]
    assert "gpt-s0-1-abcd" in names


def test_not_while_the_gang_is_being_started() -> None:
    world = new_job(spares=1)
    operator = started(world)
    assert world.spare() is None
    operator.run_until(lambda: world.spare() is not None)
    assert world.state.current is not None
    assert world.state.current.training_at is not None


def test_fewer_are_wanted() -> None:
    assert removed(decide(spec_of(seen(spares=2), spares=1))) == ["gpt-s1-1-abcd"]
    assert removed(decide(spec_of(seen(spares=2), spares=0))) == ["gpt-s0-1-abcd", "gpt-s1-1-abcd"]


def test_a_spare_of_an_older_template_goes_before_the_gang_does() -> None:
    plan = decide(spec_of(seen(), template_hash="h2"))
    changed = applied(spec_of(seen(), template_hash="h2"), plan) if plan.status else None
    assert changed is not None
    assert removed(decide(changed)) == ["gpt-s0-1-abcd"]
    bare = replace(changed, pods=tuple(p for p in changed.pods if p.spare is None))
    assert not [a for a in decide(bare).actions if isinstance(a, CreateSpare)]


def test_a_spare_that_ended_is_made_anew_after_a_while() -> None:
    evicted = with_pod(seen(), NO_RANK, phase="Failed", reason="Evicted")
    assert removed(decide(evicted)) == []
    assert removed(decide(later(evicted, 61))) == ["gpt-s0-1-abcd"]


@pytest.mark.parametrize("is_refused", [False, True])
def test_spares_give_way_to_a_pod_of_the_gang(is_refused: bool) -> None:
    before = with_pod(lost(seen()), NO_RANK, trainer=None)
    after = applied(before, decide(before))
    name = "gpt-1-2-abcd"
    if is_refused:
        no = Rejection(code=403, message="exceeded quota: gpus", at=after.now)
        waiting = replace(after, rejections={name: no})
    else:
        new = replace(
            pod_of(after, 0),
            name=name,
            uid="new",
            rank=1,
            made_in=2,
            node=None,
            phase="Pending",
            scheduled=False,
            unschedulable_since=after.now,
            trainer=None,
            sidecar=None,
            directive=None,
        )
        waiting = replace(after, pods=(*after.pods, new))
    assert "gpt-s0-1-abcd" not in removed(decide(after))
    assert "gpt-s0-1-abcd" in removed(decide(waiting))


# --- what is told ---------------------------------------------------------------------------------


def test_status_tells_how_many_are_ready_and_why_not_all() -> None:
    observed = seen()
    assert observed.job is not None
    assert observed.job.status.spares == SpareStatus(wanted=1, ready=1)
    starting = with_pod(observed, NO_RANK, trainer=None)
    told = status_of(decide(starting)).spares
    assert told is not None
    assert (told.wanted, told.ready) == (1, 0)
    assert told.message == "gpt-s0-1-abcd: its containers are being started"
    unplaced = with_pod(
        observed,
        NO_RANK,
        node=None,
        scheduled=False,
        unschedulable_message="0/4 nodes are available: 4 Insufficient nvidia.com/gpu",
    )
    told = status_of(decide(unplaced)).spares
    assert told is not None
    assert "Free GPUs or add nodes" in (told.message or "")


def test_a_stand_in_that_an_older_operator_forgot_is_an_ordinary_loss() -> None:
    """It writes a status without `standIns`, and is followed by this version again."""
    op = SPARES["spare_for_a_lost_node"].run()
    before = op.world.state
    assert before.stand_ins
    dumped = {
        k: v for k, v in before.dump().items() if k not in ("standIns", "spares", "leftNodes")
    }
    forgot = with_job(op.world.observe(), status=Status.model_validate(dumped))
    plan = decide(forgot)
    assert plan.status is not None
    assert plan.status.current is not None
    ranks = [one.rank for one in before.stand_ins]
    assert (plan.rule, plan.status.current.cause) == ("fault", Reason.POD_DELETED)
    assert plan.status.current.replaced == ranks
    assert plan.status.budgets.restarts_since_progress == 0
    names = {pod.name for pod in forgot.pods if pod.spare is not None and pod.directive is not None}
    assert names <= set(removed(decide(applied(forgot, plan)))), "it drains, and gives its place"
