"""Whose run it is: a run of another job, an older job of the same name, the last word of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.decisions import asked, prepared, status_of
from kit.observations import applied, later, new_job, running, with_exit, with_job, with_report
from kit.others_runs import HOLDER, OWNER, hold_of, in_use, told
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import NodeView, Observed
from rtj_operator.core.plan import DeletePod, PatchDirective


def test_the_hold_names_the_owner_and_every_way_out() -> None:
    reason, words = hold_of(decide(in_use()))
    assert reason == Reason.RUN_IN_USE
    for word in ("team/gpt", "attempt 3", "2023-11-14", "cluster-2", "takeOver: uid-9", "runID"):
        assert word in words


def test_a_run_of_a_living_job_of_this_cluster_says_so() -> None:
    seen = replace(in_use(), owner_lives={OWNER: True})
    assert "of this cluster, where it lives" in hold_of(decide(seen))[1]


def test_a_job_that_is_gone_is_claimed_over_in_the_same_attempt_without_a_hold() -> None:
    seen = replace(in_use(), owner_lives={OWNER: False})
    plan = decide(seen)
    status = status_of(plan)
    assert (plan.rule, status.hold, status.attempt) == ("permit", None, 1)
    after = applied(seen, plan)
    orders = told(decide(after))
    assert set(orders) == {0}
    assert (orders[0].may_claim, orders[0].claim_over) == (True, OWNER)
    answered = decide(later(after, 5))
    assert answered.status is None or answered.status.hold is None, "it was answered already"
    assert hold_of(decide(later(after, 700)))[0] == Reason.RUN_IN_USE, "every wait ends"


@pytest.mark.parametrize("named", [OWNER, "uid-9"])
def test_take_over_claims_over_the_named_owner(named: str) -> None:
    plan = decide(in_use(spec={"take_over": named}))
    assert plan.rule == "permit"
    assert [n.reason for n in plan.notes] == [Reason.RUN_TAKEN_OVER]
    assert decide(in_use(spec={"take_over": "uid-8"})).rule == "fault"


def test_a_held_run_is_watched_by_the_sidecar_and_no_attempt_is_wasted() -> None:
    seen = in_use()
    held = applied(seen, decide(seen))
    plan = decide(later(held, 200))
    assert plan.status is None or plan.status.attempt == 1
    assert plan.wake_at is not None
    released = HOLDER.model_copy(update={"outcome": "released"})
    free = with_report(held, 0, lambda r: r.model_copy(update={"holder": released}))
    assert status_of(decide(free)).attempt == 2


def test_without_conditional_writes_only_a_person_gives_the_run_over() -> None:
    alone = HOLDER.model_copy(update={"person_only": True})
    seen = replace(in_use(holder=alone), owner_lives={OWNER: False})
    reason, words = hold_of(decide(seen))
    assert reason == Reason.RUN_IN_USE
    assert "does not honour conditional writes" in words
    held = applied(seen, decide(seen))
    released = alone.model_copy(update={"outcome": "released"})
    for later_seen in (
        later(held, 10_000),
        with_report(held, 0, lambda r: r.model_copy(update={"holder": released})),
    ):
        plan = decide(later_seen)
        assert plan.status is None or plan.status.attempt == 1
        assert plan.wake_at is not None
    assert status_of(decide(asked(held, wire.RequestAction.TAKE_OVER))).attempt == 2
    named = replace(in_use(spec={"take_over": OWNER}, holder=alone), owner_lives={OWNER: False})
    assert decide(named).rule == "permit"


def test_a_job_whose_run_was_taken_over_says_what_stays_in_its_pods() -> None:
    seen = running()
    status = status_of(decide(asked(seen, wire.RequestAction.RESTART)))
    again = with_job(seen, status=status)
    lost = with_report(
        again,
        0,
        lambda r: r.model_copy(
            update={
                "attempt": 2,
                "phase": wire.SidecarPhase.FAILED,
                "problem": wire.Problem(reason="RunInUse", message="another's", since=1.0),
                "fence": None,
                "fence_owner": OWNER,
                "listed": True,
                "holder": HOLDER,
                "checkpoint": r.checkpoint.model_copy(update={"pending_saves": 2}),
            }
        ),
    )
    reason, words = hold_of(decide(lost))
    assert reason == Reason.RUN_IN_USE
    assert "was taken over by team/gpt" in words
    assert "2 finished saves of this job" in words


def owned_unnamed() -> Observed:
    problem = wire.Problem(reason="RunInUse", message="belongs to c/other", since=1001.0)
    return prepared(
        phase=wire.SidecarPhase.FAILED,
        problem=problem,
        fence=None,
        fence_owner="c/other",
        listed=True,
    )


def test_a_run_in_use_is_held_and_the_remedy_named() -> None:
    plan = decide(owned_unnamed())
    status = status_of(plan)
    assert status.hold is not None
    assert status.hold.reason == Reason.RUN_IN_USE
    assert "take-over" in status.hold.message
    assert status.starts == 0


def test_it_stays_held_while_the_owner_lives() -> None:
    seen = owned_unnamed()
    held = replace(applied(seen, decide(seen)), owner_lives={"c/other": True})
    for seconds in (10, 100, 290):
        plan = decide(later(held, seconds))
        assert plan.status is None or plan.status.attempt == 1
        assert plan.wake_at is not None


def test_it_is_claimed_once_the_owner_is_gone() -> None:
    seen = owned_unnamed()
    held = replace(applied(seen, decide(seen)), owner_lives={"c/other": False})
    plan = decide(held)
    assert status_of(plan).attempt == 2
    patches = [a for a in decide(applied(held, plan)).actions if isinstance(a, PatchDirective)]
    by_rank = {p.directive.rank: p.directive for p in patches}
    assert (by_rank[0].may_claim, by_rank[0].claim_over) == (True, "c/other")
    assert not by_rank[1].may_claim, "to the others it would be a new directive"


def test_it_is_claimed_when_a_person_says_so() -> None:
    seen = owned_unnamed()
    held = replace(applied(seen, decide(seen)), owner_lives={"c/other": True})
    plan = decide(asked(held, wire.RequestAction.TAKE_OVER))
    status = status_of(plan)
    assert status.current is not None
    assert status.current.may_claim


def test_a_finished_run_is_not_trained_again() -> None:
    seen = prepared(run_complete=True)
    plan = decide(seen)
    status = status_of(plan)
    assert status.hold is not None
    assert status.hold.reason == Reason.RUN_ALREADY_COMPLETE
    held = applied(seen, plan)
    assert decide(later(held, 200)).rule == "held"
    freed = decide(later(held, 400))
    assert len(freed.actions) == 2, "the GPUs are freed"


def test_pods_of_an_older_job_are_waited_for_unless_their_node_will_never_end_them() -> None:
    world = new_job()
    seen = world.observe()
    old = prepared().pods[0]
    old = replace(old, deleting_since=seen.now - 300, deletion_deadline=seen.now - 200, node="n1")
    waits = replace(seen, older_pods=(old,), nodes={"n1": NodeView(name="n1", ready=True)})
    plan = decide(waits)
    assert (plan.rule, status_of(plan).attempt) == ("first_attempt", 0)
    lost = replace(waits, nodes={"n1": NodeView(name="n1", ready=None)})
    assert status_of(decide(lost)).attempt == 1
    gone = replace(waits, nodes={"n1": NodeView(name="n1", exists=False, ready=None)})
    assert status_of(decide(gone)).attempt == 1


def test_the_pods_of_a_job_that_is_gone_are_told_so_once() -> None:
    seen = running()
    gone = replace(seen, job=None, pods=(), older_pods=seen.pods)
    plan = decide(gone)
    orders = told(plan)
    assert set(orders) == {0}, "rank 0's sidecar alone holds the fence"
    assert (orders[0].phase, orders[0].ending) == (wire.Phase.STOP, "released")
    assert orders[0].attempt == seen.job.status.attempt
    known = tuple(replace(p, directive=orders.get(p.rank, p.directive)) for p in seen.pods)
    assert decide(replace(gone, older_pods=known)).is_empty
    going = decide(with_job(seen, deleting=True))
    assert told(going)[0].ending == "released"


def test_pods_that_a_person_leaves_without_their_job_go_on_untouched() -> None:
    plan = decide(with_job(running(), deleting=True, leaves_pods=True))
    assert (plan.rule, plan.is_empty) == ("deleting", True)


def test_a_failed_jobs_rank_0_says_so_before_it_goes_and_not_for_ever() -> None:
    seen = running(max_restarts=0)
    broken = with_exit(seen, 1, exit_code=1)
    plan = decide(broken)
    assert status_of(plan).phase == "Failed"
    failed = applied(broken, plan)
    last = decide(failed)
    assert told(last)[0].ending == "failed"
    assert [a.name for a in last.actions if isinstance(a, DeletePod)] == [failed.pods[1].name]
    said = with_report(
        failed,
        0,
        lambda r: r.model_copy(update={"phase": wire.SidecarPhase.DRAINED, "seq": 4}),
    )
    for ended in (said, later(failed, 31)):
        names = {a.name for a in decide(ended).actions if isinstance(a, DeletePod)}
        assert failed.pods[0].name in names
