"""Laws of `decide` on observations that no sane cluster would show: total, deterministic, and
never dangerous, whatever it is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kit.drawn import observations
from kit.drawn_pods import UID
from kit.observations import applied
from rtj_api import contract, wire
from rtj_api.reasons import Charge
from rtj_api.status import Status
from rtj_operator.core.decide import decide
from rtj_operator.core.directives import HAS_RESTORED
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import CreatePod, CreateSpare, DeletePod, PatchDirective

laws = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def status_of(observed: Observed) -> Status:
    assert observed.job is not None
    return observed.job.status


def own_names(status: Status) -> list[str]:
    """By rank: the name of its pod."""
    names = [
        contract.pod_name(job="gpt", rank=rank, made_in=made_in, job_uid=UID)
        for rank, made_in in enumerate(status.placements)
    ]
    for s in status.stand_ins:
        names[s.rank] = contract.spare_name(
            job="gpt", spare=s.spare, made_in=s.made_in, job_uid=UID
        )
    return names


@laws
@given(observations())
def test_a_pod_plays_one_rank_and_a_rank_one_pod(observed: Observed) -> None:
    """What is recorded gives every rank its own pod, and a spare is taken only once."""
    old, new = status_of(observed), decide(observed).status
    if new is None:
        return
    played = [(s.spare, s.made_in) for s in new.stand_ins]
    assert len(set(played)) == len(played)
    assert len({s.rank for s in new.stand_ins}) == len(played)
    known = {p.name: p for p in observed.pods}
    for stand_in in new.stand_ins:
        if stand_in in old.stand_ins:
            continue
        assert new.attempt == old.attempt + 1
        assert new.placements[stand_in.rank] == new.attempt
        pod = known[own_names(new)[stand_in.rank]]
        assert pod.directive is None, "it was another rank's before"
        assert pod.deleting_since is None


@laws
@given(observations())
def test_it_is_total_deterministic_and_its_words_are_json(observed: Observed) -> None:
    plan = decide(observed)
    assert decide(observed) == plan
    assert plan.rule
    assert plan.why
    if plan.status is not None:
        assert Status.model_validate(plan.status.dump()) == plan.status


@laws
@given(observations(), st.randoms(use_true_random=False))
def test_the_order_of_pods_means_nothing(observed: Observed, shuffle: Any) -> None:
    pods_ = list(observed.pods)
    shuffle.shuffle(pods_)
    assert decide(replace(observed, pods=tuple(pods_))) == decide(observed)


@laws
@given(observations())
def test_it_decides_or_acts_never_both_and_always_looks_again(observed: Observed) -> None:
    plan = decide(observed)
    assert not (plan.actions and plan.status is not None)
    job = observed.job
    assert job is not None
    over = job.deleting or job.status.is_terminal
    if not over:
        assert plan.wake_at is not None


@laws
@given(observations())
def test_attempts_only_rise_and_counters_count_once(observed: Observed) -> None:
    old, new = status_of(observed), decide(observed).status
    if new is None:
        return
    assert old.attempt <= new.attempt <= old.attempt + 1
    assert old.starts <= new.starts <= old.starts + 1
    assert old.restarts <= new.restarts <= old.restarts + 1
    assert old.failures <= new.failures <= old.failures + 1
    assert len(new.attempts) <= 10
    if new.starts > old.starts:
        assert new.is_started
        assert not old.is_started or new.attempt > old.attempt


@laws
@given(observations())
def test_the_budget_is_never_exceeded_and_infrastructure_is_free(observed: Observed) -> None:
    job = observed.job
    assert job is not None
    old, new = job.status, decide(observed).status
    if new is None or job.spec is None:
        return
    before, after = old.budgets.restarts_since_progress, new.budgets.restarts_since_progress
    # A try recorded under an older, larger limit is still started; a new one is not.
    if after > before and new.attempt > old.attempt:
        assert after <= job.spec.max_restarts
    if after > before:
        assert new.current is not None
        assert new.current.charge == Charge.USER


@laws
@given(observations())
def test_terminal_absorbs(observed: Observed) -> None:
    assume(status_of(observed).is_terminal)
    plan = decide(observed)
    assert not any(isinstance(a, CreatePod) for a in plan.actions)
    if plan.status is not None:
        old = status_of(observed)
        told = {"last_request": plan.status.last_request}
        assert plan.status == old.model_copy(update=told)


@laws
@given(observations())
def test_no_go_before_all_ranks_hold_the_same_save(observed: Observed) -> None:
    status = status_of(observed)
    plan = decide(observed)
    told = {
        p.uid
        for p in observed.pods
        if p.directive
        and p.directive.attempt == status.attempt
        and p.directive.seq >= wire.SEQ[wire.Phase.GO]
    }
    was_given = bool(told) or (
        status.current is not None and status.current.restored_at is not None
    )
    for action in plan.actions:
        if not isinstance(action, PatchDirective) or action.directive.phase != wire.Phase.GO:
            continue
        directive = action.directive
        assert status.is_started
        assert status.resume is not None
        assert directive.attempt == status.attempt
        assert status.current is not None
        if status.current.through_store:  # the sidecars see to it
            assert directive.through_store is not None
            continue
        assert directive.through_store is None
        assert directive.resume is not None
        assert directive.resume.name == status.resume.name
        if directive.fast or was_given:
            continue
        for name in own_names(status):
            pod = next(p for p in observed.pods if p.name == name)
            report = observed.report_of(pod)
            assert report is not None
            assert report.attempt == status.attempt
            assert report.phase in HAS_RESTORED


@laws
@given(observations())
def test_actions_are_well_formed(observed: Observed) -> None:
    status = status_of(observed)
    plan = decide(observed)
    created = [a.name for a in plan.actions if isinstance(a, CreatePod | CreateSpare)]
    existing = {p.name for p in observed.pods}
    assert len(created) == len(set(created))
    assert not existing & set(created), "never a twin"
    for action in plan.actions:
        match action:
            case CreatePod():
                assert action.made_in == status.placements[action.rank] == status.attempt
                assert not status.is_started, "after the start a missing pod is a loss"
            case CreateSpare():
                assert action.made_in == status.attempt
                assert status.is_started, "the gang goes first"
                assert status.hold is None
                spec = observed.job.spec if observed.job is not None else None
                assert spec is not None
                assert action.spare < spec.spares
            case DeletePod(force=True):
                pod = next(p for p in observed.pods if p.name == action.name)
                node = observed.nodes.get(pod.node or "")
                assert node is not None
                assert not node.exists or node.ready is not True or observed.reports.get(pod.uid)
            case PatchDirective():
                pod = next(p for p in observed.pods if p.name == action.pod)
                assert (pod.uid, pod.resource_version) == (action.uid, action.resource_version)
                assert action.directive.pod_uid == pod.uid
                assert action.directive != pod.directive
                assert pod.directive is None or pod.directive.rank == action.directive.rank
                assert pod.spare is not None or pod.rank == action.directive.rank


@laws
@given(observations())
def test_a_held_job_loses_no_pod_with_a_save_that_is_not_durable(observed: Observed) -> None:
    status = status_of(observed)
    assume(status.hold is not None and not status.is_terminal)
    plan = decide(observed)
    own = own_names(status)
    for action in plan.actions:
        if not isinstance(action, DeletePod) or action.name not in own:
            continue
        pod = next(p for p in observed.pods if p.name == action.name)
        report, view = observed.report_of(pod), observed.reports.get(pod.uid)
        heard = view is not None and view.connected and view.last_contact is not None
        if heard and report is not None:
            assert report.checkpoint.pending_saves == 0


@laws
@given(observations())
def test_status_writes_come_to_rest(observed: Observed) -> None:
    """Writing what was decided, with the world standing still, ends after a few writes."""
    seen = observed
    for _ in range(12):
        plan = decide(seen)
        if plan.status is None:
            return
        seen = applied(seen, plan)
    raise AssertionError(f"still writing: {plan.rule}: {plan.why}")


@laws
@given(observations())
def test_last_durable_step_falls_only_with_a_choice(observed: Observed) -> None:
    old, new = status_of(observed), decide(observed).status
    if new is None or new.checkpoint.last_durable_step is None:
        return
    was = old.checkpoint.last_durable_step
    if was is not None and new.checkpoint.last_durable_step < was:
        assert new.resume != old.resume
