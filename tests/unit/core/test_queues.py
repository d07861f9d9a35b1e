"""A gang in Kueue's queue: when its group goes on, when a new one begins, and what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.observations import (
    applied,
    later,
    new_job,
    pod_of,
    running,
    with_job,
    with_pod,
    without_pod,
)
from rtj_api import contract
from rtj_api.reasons import Charge, Reason
from rtj_api.status import ConditionType, RestartKind, Status
from rtj_operator.core import time_ledger
from rtj_operator.core.absorb import absorbed
from rtj_operator.core.conditions import next_conditions
from rtj_operator.core.decide import decide
from rtj_operator.core.gang import Alarm, Gang, gather
from rtj_operator.core.gangs import QUEUE_GATE
from rtj_operator.core.observed import Observed, PodView, QueueView
from rtj_operator.core.plan import CreatePod, DeletePod, FreePod, PatchDirective, Plan
from rtj_operator.core.policy import Policy

PREEMPTED = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization"


def queued(**pod: Any) -> Observed:
    """Two ranks of one group, admitted, that train."""
    seen = running(gang_scheduler="kueue", queue="team-a")
    for rank in (0, 1):
        seen = with_pod(seen, rank, group=group(seen, 1), is_queued=True, **pod)
    return replace(seen, pods=tuple(replace(p, is_kept_by_queue=True) for p in seen.pods))


def group(seen: Observed, since: int) -> str:
    assert seen.job is not None
    return contract.group_name(job=seen.job.key.name, job_uid=seen.job.uid, since=since)


def ended(seen: Observed, rank: int, **fields: Any) -> Observed:
    fields = {"deleting_since": seen.now - 1, "deletion_deadline": seen.now + 300, **fields}
    return with_pod(seen, rank, **fields)


def gang_of(seen: Observed, status: Status | None = None) -> Gang:
    assert seen.job is not None
    return gather(seen, policy=Policy(), alarm=Alarm(seen.now), status=status or seen.job.status)


def status_of(plan: Plan) -> Status:
    assert plan.status is not None, plan
    return plan.status


def creates(seen: Observed) -> dict[int, int | None]:
    plan = decide(seen)
    return {a.rank: a.group_since for a in plan.actions if isinstance(a, CreatePod)}


def free_of_backoff(status: Status) -> Status:
    assert status.current is not None
    current = status.current.model_copy(update={"not_before": None})
    return status.model_copy(update={"current": current})


def test_the_first_attempt_begins_a_group() -> None:
    current = queued().job.status.current  # type: ignore[union-attr]
    assert current is not None
    assert current.group_since == 1


def test_a_job_without_a_queue_has_no_group() -> None:
    current = running().job.status.current  # type: ignore[union-attr]
    assert current is not None
    assert current.group_since is None


def test_preemption_by_the_queue_is_free_and_takes_the_whole_gang() -> None:
    """Kueue deletes one pod after the other: the others are as good as gone."""
    status = status_of(decide(ended(queued(), 1, ended_by_queue=PREEMPTED)))
    current = status.current
    assert current is not None
    assert (current.cause, current.charge) == (Reason.PREEMPTED_BY_QUEUE, Charge.INFRASTRUCTURE)
    assert (current.kind, current.replaced) == (RestartKind.RECREATE, [0, 1])
    assert current.group_since == status.attempt == 2
    assert PREEMPTED in current.message
    assert status.budgets.restarts_since_progress == 0


def test_the_new_group_is_made_while_the_old_pods_still_drain() -> None:
    seen = ended(queued(), 1, ended_by_queue=PREEMPTED)
    status = free_of_backoff(status_of(decide(seen)))
    assert creates(with_job(seen, status=status)) == {0: 2, 1: 2}


def test_a_lost_rank_joins_the_group_that_goes_on() -> None:
    seen = without_pod(queued(), 1)
    status = status_of(decide(seen))
    current = status.current
    assert current is not None
    assert (current.kind, current.replaced, current.group_since) == (RestartKind.REPLACE, [1], 1)
    assert creates(with_job(seen, status=free_of_backoff(status))) == {1: 1}


@pytest.mark.parametrize(
    ("end", "is_counted"),
    [
        ({"phase": "Running"}, True),  # draining its last save
        ({"phase": "Succeeded"}, True),  # kept by the finalizer
        ({"phase": "Failed"}, False),
    ],
)
def test_a_replacement_waits_while_kueue_would_call_it_one_too_many(
    end: dict[str, str], is_counted: bool
) -> None:
    seen = ended(queued(), 1, **end)
    status = free_of_backoff(status_of(decide(seen)))
    assert creates(with_job(seen, status=status)) == ({} if is_counted else {1: 1})


def test_pods_of_an_older_group_are_not_counted() -> None:
    seen = queued()
    seen = replace(seen, pods=tuple(replace(p, group=group(seen, 9), made_in=9) for p in seen.pods))
    gone = without_pod(seen, 1)
    status = free_of_backoff(status_of(decide(gone)))
    assert creates(with_job(gone, status=status)) == {1: 1}


def test_without_a_pod_on_a_node_the_group_is_over() -> None:
    """A pod that waits proves nothing: its Workload may be put out, and would not let it go."""
    seen = with_pod(without_pod(queued(), 1), 0, node=None, gates=(QUEUE_GATE,), phase="Pending")
    current = status_of(decide(seen)).current
    assert current is not None
    assert (current.replaced, current.group_since) == ([0, 1], 2)


@pytest.mark.parametrize(
    ("fields", "is_freed"),
    [
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, True),
        ({"phase": "Pending", "node": None, "gates": (QUEUE_GATE,)}, True),
        ({"phase": "Running"}, False),
        ({"phase": "Running", "deletion_deadline": -1.0}, True),  # by force, from a lost node
    ],
)
def test_a_pod_that_has_ended_is_freed_of_the_queues_finalizer(
    fields: dict[str, Any], is_freed: bool
) -> None:
    seen = queued()
    if "deletion_deadline" in fields:
        fields = {**fields, "deletion_deadline": seen.now - 1}
    seen = ended(seen, 1, ended_by_queue=PREEMPTED, **fields)
    status = status_of(decide(seen))
    plan = decide(with_job(seen, status=status))
    freed = [a.name for a in plan.actions if isinstance(a, FreePod)]
    assert freed == ([pod_of(seen, 1).name] if is_freed else [])
    again = [a.name for a in plan.actions if isinstance(a, DeletePod) and a.name in freed]
    assert again == []


def test_pods_of_a_job_that_is_gone_are_freed() -> None:
    seen = ended(queued(), 1, phase="Pending", node=None, gates=(QUEUE_GATE,))
    gone = replace(seen, job=None, pods=(), older_pods=seen.pods)
    freed = [a.name for a in decide(gone).actions if isinstance(a, FreePod)]
    assert freed == [pod_of(seen, 1).name]


def test_pods_of_an_older_job_of_the_same_name_are_freed_and_keep_nobody_waiting() -> None:
    """The job was deleted in the queue and applied again, sooner than its pods were deleted."""
    old = queued(phase="Pending", node=None, gates=(QUEUE_GATE,), deleting_since=1.0).pods
    seen = new_job().observe()
    plan = decide(replace(seen, older_pods=old))
    assert {a.name for a in plan.actions if isinstance(a, FreePod)} == {p.name for p in old}
    assert status_of(decide(seen)).attempt == 1
    # Those that drain meanwhile end later than the new job begins.
    late = replace(queued(), older_pods=tuple(replace(p, phase="Succeeded") for p in old))
    plan = decide(late)
    assert [type(a) for a in plan.actions] == [FreePod, FreePod]


def test_a_deactivated_workload_holds_the_job_until_a_person_asks() -> None:
    said = "The workload is deactivated"
    seen = queued()
    for rank in (0, 1):
        seen = ended(seen, rank, ended_by_queue=said)
    status = status_of(decide(seen))
    assert status.hold is not None
    assert status.hold.reason == Reason.QUEUE_DEACTIVATED
    assert status.hold.retry_at is None
    assert said in status.hold.message
    # Nothing is queued again by itself, however long it takes.
    late = later(with_job(seen, status=status), 100_000)
    assert not [a for a in decide(late).actions if isinstance(a, CreatePod)]


# --- while it waits --------------------------------------------------------------------------


def waiting(*, queue: QueueView | None = None, age: float = 3600.0, **pod: Any) -> Observed:
    """Attempt 1 of a new group, of which all pods wait in the queue."""
    seen = queued()
    assert seen.job is not None
    current = seen.job.status.current
    assert current is not None
    bare = current.model_copy(
        update={"scheduled_at": None, "admitted_at": None, "training_at": None}
    )
    status = seen.job.status.model_copy(update={"resume": None, "current": bare})
    fields = {
        "node": None,
        "ip": None,
        "phase": "Pending",
        "scheduled": False,
        "unschedulable_message": "Scheduling is blocked due to non-empty scheduling gates",
        "gates": (QUEUE_GATE,),
        "sidecar": None,
        "trainer": None,
        "created_at": seen.now - age,
        "unschedulable_since": seen.now - age,
        **pod,
    }
    for rank in (0, 1):
        seen = with_pod(seen, rank, **fields)
    return replace(with_job(seen, status=status), queue=queue, reports={})


def running_condition(seen: Observed) -> Any:
    return next(c for c in next_conditions(gang_of(seen)) if c.type == ConditionType.RUNNING)


def test_a_gang_that_waits_says_what_is_short() -> None:
    said = "couldn't assign flavors to pod set rank: insufficient unused quota for cpu"
    condition = running_condition(waiting(queue=QueueView(message=said)))
    assert condition.reason == Reason.QUEUED
    assert said in condition.message
    assert "LocalQueue team-a" in condition.message
    assert running_condition(waiting()).reason == Reason.QUEUED


def test_a_gang_that_waits_for_days_is_not_tried_again() -> None:
    plan = decide(waiting(age=500_000))
    assert plan.status is None or plan.status.attempt == 1
    assert not [a for a in plan.actions if isinstance(a, (CreatePod, DeletePod))]


def test_nodes_to_keep_off_do_not_shorten_the_wait_in_the_queue() -> None:
    seen = waiting()
    assert seen.job is not None
    current = seen.job.status.current
    assert current is not None
    status = seen.job.status.model_copy(
        update={"current": current.model_copy(update={"avoid_nodes": ["n1"]})}
    )
    plan = decide(with_job(seen, status=status))
    assert plan.status is None or plan.status.attempt == 1


def test_a_queue_that_nobody_serves_is_told_after_a_moment() -> None:
    fresh = waiting(is_queued=False, age=5.0)
    assert running_condition(fresh).reason == Reason.PENDING
    condition = running_condition(later(fresh, 60))
    assert condition.reason == Reason.QUEUE_NOT_SERVED
    assert "gang: none" in condition.message


def test_a_gate_of_somebody_else_is_named() -> None:
    condition = running_condition(waiting(gates=("example.com/quota",)))
    assert condition.reason == Reason.SCHEDULING_GATED
    assert "example.com/quota" in condition.message


def test_a_scheduler_that_is_not_there_is_named() -> None:
    seen = waiting(gates=(), scheduled=None, scheduler="volcano", unschedulable_message=None)
    condition = running_condition(seen)
    assert condition.reason == Reason.UNSCHEDULABLE
    assert "scheduler volcano has not looked at pod" in condition.message


def test_the_wait_in_the_queue_is_queue_time_also_after_a_preemption() -> None:
    seen = ended(queued(), 1, ended_by_queue=PREEMPTED)
    status = status_of(decide(seen))
    assert status.ledger is not None
    before = status.ledger.seconds
    waits = waiting()
    assert status.current is not None
    current = status.current.model_copy(update={"admitted_at": seen.now + 70.0, "not_before": None})
    admitted = status.model_copy(update={"current": current})
    spent = time_ledger.settled(admitted, admitted, now=seen.now + 100.0).seconds
    assert spent.queue - before.queue == pytest.approx(70.0, abs=0.01)
    assert spent.schedule - before.schedule == pytest.approx(30.0, abs=0.01)
    # It is admitted when no pod of it is held back any more.
    assert absorbed(gang_of(waits)).current.admitted_at is None  # type: ignore[union-attr]
    free = waiting(gates=())
    assert absorbed(gang_of(free)).current.admitted_at == free.now  # type: ignore[union-attr]


def at_rest(seen: Observed) -> tuple[Observed, Plan]:
    """What is seen once everything is written and told, and the empty plan made of it."""
    plan = decide(seen)
    for _ in range(4):
        for action in plan.actions:
            assert isinstance(action, PatchDirective)  # for the day on which it runs
            seen = with_pod(seen, action.directive.rank, directive=action.directive)
        seen = seen if plan.status is None else applied(seen, plan)
        plan = decide(seen)
    assert plan.is_empty, plan
    return seen, plan


@pytest.mark.parametrize(("message", "within"), [(None, 5.0), ("no quota", 30.0)])
def test_a_gang_that_waits_is_at_rest_and_kueues_word_is_read_anew(
    message: str | None, within: float
) -> None:
    seen, plan = at_rest(waiting(queue=QueueView(message=message)))
    assert plan.wake_at is not None
    assert plan.wake_at <= seen.now + within


def test_a_view_without_a_gate_or_a_node_is_not_gated() -> None:
    known = pod_of(queued(), 0)
    assert isinstance(known, PodView)
    assert not known.is_gated
    assert not replace(known, gates=(QUEUE_GATE,)).is_gated, "it has a node: the gates are history"
