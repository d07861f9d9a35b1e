"""Laws of `decide` on observations that no sane cluster would show: total, deterministic, and
never dangerous, whatever it is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kit.observations import applied
from rtj_api import contract, wire
from rtj_api.reasons import Charge, Reason
from rtj_api.status import (
    Beginnings,
    Budgets,
    CheckpointStatus,
    Condition,
    ConditionType,
    CurrentAttempt,
    Hold,
    RestartKind,
    ResumeDecision,
    Status,
    WantedBeginning,
)
from rtj_operator.core.decide import decide
from rtj_operator.core.directives import HAS_RESTORED
from rtj_operator.core.observed import (
    ContainerEnd,
    ContainerView,
    JobKey,
    JobSpec,
    JobView,
    NodeView,
    Observed,
    PodView,
    ReportView,
    SpecProblem,
)
from rtj_operator.core.plan import CreatePod, DeletePod, PatchDirective

UID = "abcd0000-0000-0000-0000-000000000001"
NOW = 5000.0
times = st.floats(min_value=0, max_value=120).map(lambda ago: NOW - round(ago, 3))
maybe_time = st.none() | times
names = st.sampled_from(["f1-n1-s4", "f1-n2-s8", "f2-n1-s12"])
nodes = st.sampled_from(["node0", "node1", "node2"])

ends = st.builds(
    ContainerEnd,
    exit_code=st.integers(0, 255),
    reason=st.sampled_from([None, "Error", "OOMKilled", "Completed"]),
    message=st.sampled_from([None, "released", "abandoned"]),
    finished_at=maybe_time,
)
containers = st.builds(
    ContainerView,
    name=st.just("trainer"),
    running=st.booleans(),
    started_at=maybe_time,
    waiting_reason=st.sampled_from([None, "CrashLoopBackOff", "ImagePullBackOff", "Weird"]),
    ended=st.none() | ends,
    last_end=st.none() | ends,
    restarts=st.integers(0, 20),
)
resumes = st.builds(
    wire.Resume, scratch=st.booleans(), name=st.none() | names, step=st.none() | st.integers(0, 99)
)


@st.composite
def directives(draw: st.DrawFn, uid: str, rank: int) -> wire.Directive:
    phase = draw(st.sampled_from(list(wire.Phase)))
    return wire.Directive(
        job_uid=UID,
        pod_uid=uid,
        rank=rank,
        attempt=draw(st.integers(1, 4)),
        seq=wire.SEQ[phase],
        phase=phase,
        world_size=2,
        resume=draw(st.none() | resumes),
    )


@st.composite
def pods(draw: st.DrawFn, rank: int, made_in: int) -> PodView:
    uid = f"u{rank}-{made_in}"
    since = draw(maybe_time)
    trainer = draw(st.none() | containers)
    if trainer is not None and trainer.last_end is not None and draw(st.booleans()):
        said = draw(reports(uid, rank)).report
        words = said.dump_json() if said is not None else "{"
        ending = replace(trainer.last_end, message=words)
        trainer = replace(
            trainer, **draw(st.sampled_from([{"ended": ending}, {"last_end": ending}]))
        )
    placed = draw(st.booleans())
    return PodView(
        name=contract.pod_name(job="gpt", rank=rank, made_in=made_in, job_uid=UID),
        uid=uid,
        resource_version="7",
        rank=rank,
        made_in=made_in,
        created_at=draw(times),
        node=draw(nodes) if placed else None,
        ip="198.18.0.9" if placed and draw(st.booleans()) else None,
        phase=draw(st.sampled_from(["Pending", "Running", "Running", "Succeeded", "Failed"])),
        reason=draw(st.sampled_from([None, "Evicted", "NodeLost", "Whatever"])),
        deleting_since=since if draw(st.booleans()) else None,
        deletion_deadline=since,
        disruption=draw(st.sampled_from([None, None, "EvictionByEvictionAPI", "New"])),
        scheduled=draw(st.sampled_from([None, True, False])),
        unschedulable_since=draw(maybe_time),
        trainer=trainer,
        sidecar=draw(st.none() | containers),
        directive=draw(st.none() | directives(uid, rank)),
        template_hash=draw(st.sampled_from([None, "h1", "h2"])),
    )


candidates = st.builds(
    wire.Candidate,
    name=names,
    step=st.none() | st.integers(0, 99),
    durable=st.booleans(),
    invalid=st.sampled_from([None, None, "CheckpointCorrupt"]),
    full_state=st.sampled_from([None, True, False]),
    needs=st.lists(st.integers(0, 1), max_size=2, unique=True),
)
problems = st.builds(
    wire.Problem,
    reason=st.sampled_from([*Reason, "SomethingNew"]).map(str),
    message=st.just("told by the sidecar"),
    since=times,
    ranks=st.lists(st.integers(-1, 3), max_size=2),
)


holders = st.builds(
    wire.Holder,
    owner=st.sampled_from(["cluster/other", "cluster/third"]),
    job=st.sampled_from([None, "gpt"]),
    attempt=st.integers(1, 3),
    fence=st.integers(1, 5),
    claimed_at=times,
    outcome=st.sampled_from([None, "released", "failed", "complete"]),
)
wishes = ["f1-n1-s4", "request 1", f"Fresh of job {UID}"]


@st.composite
def reports(draw: st.DrawFn, uid: str, rank: int) -> ReportView:
    report = wire.Report(
        job_uid=UID,
        pod_uid=draw(st.sampled_from([uid, uid, uid, "another"])),
        rank=rank,
        boot_id="b",
        sequence=draw(st.integers(0, 9)),
        sent_at=NOW,
        attempt=draw(st.integers(0, 4)),
        seq=draw(st.integers(0, 5)),
        phase=draw(st.sampled_from(list(wire.SidecarPhase))),
        supervisor_seen=draw(st.booleans()),
        settling=draw(st.booleans()),
        terminating=draw(st.booleans()),
        trainer=wire.TrainerView(
            state=draw(st.sampled_from(list(wire.TrainerState))),
            attempt=draw(st.integers(0, 4)),
            started_at=draw(maybe_time),
            ended_at=draw(maybe_time),
            exit_code=draw(st.sampled_from([None, 0, 0, 1, -9, 137])),
            signal=draw(st.sampled_from([None, None, 9])),
            oom_kills=draw(st.integers(0, 1)),
            asked_to_stop=draw(st.booleans()),
            container_restarted=draw(st.booleans()),
        ),
        problem=draw(st.none() | problems),
        fence=draw(st.none() | st.integers(1, 5)),
        fence_owner=draw(st.sampled_from([None, None, "cluster/other"])),
        listed=draw(st.sampled_from([None, True, True, False])),
        candidates=draw(st.lists(candidates, max_size=3, unique_by=lambda c: c.name)),
        run_complete=draw(st.sampled_from([False, False, False, True])),
        completed_by=draw(st.sampled_from([None, f"cluster/{UID}", "cluster/other"])),
        holder=draw(st.none() | holders),
        found=draw(
            st.none()
            | st.builds(
                wire.Found,
                asked=st.sampled_from(wishes),
                save=st.none() | candidates,
                problem=st.sampled_from([None, "bit rot"]),
            )
        ),
        acted=draw(st.lists(st.sampled_from(wishes), max_size=2, unique=True)),
        pinned=draw(st.lists(names, max_size=3, unique=True)),
        progress=wire.ProgressView(
            step=draw(st.none() | st.integers(0, 99)), updated_at=draw(maybe_time)
        ),
        checkpoint=wire.CheckpointView(
            last_durable_step=draw(st.none() | st.integers(0, 99)),
            last_durable_at=draw(maybe_time),
            last_durable_name=draw(st.none() | names),
            pending_saves=draw(st.integers(0, 2)),
        ),
    )
    connected = draw(st.booleans())
    return ReportView(
        report=draw(st.sampled_from([report, report, report, None])),
        received_at=draw(maybe_time),
        connected=connected,
        last_contact=draw(maybe_time),
        polled_since=draw(maybe_time),
        disconnected_since=None if connected else draw(maybe_time),
    )


wanted = st.builds(
    WantedBeginning,
    value=st.sampled_from([None, "f1-n1-s4"]),
    asked=st.sampled_from(wishes),
)


@st.composite
def statuses(draw: st.DrawFn) -> Status:
    attempt = draw(st.integers(0, 3))
    if attempt == 0:
        return Status()
    started = draw(st.booleans())
    resume = ResumeDecision(
        attempt=attempt if started else max(0, attempt - 1),
        scratch=draw(st.booleans()),
        name=draw(st.none() | names),
        step=draw(st.none() | st.integers(0, 99)),
        fast=draw(st.booleans()),
        through_store=draw(st.sampled_from([False, False, True])),
        asked=draw(st.sampled_from([None, None, *wishes])),
        at=draw(times),
    )
    hold = None
    if draw(st.integers(0, 3)) == 0:
        hold = Hold(
            reason=draw(
                st.sampled_from(
                    [
                        Reason.SUSPENDED,
                        Reason.NO_VALID_CHECKPOINT,
                        Reason.STORE_UNREACHABLE,
                        Reason.RUN_IN_USE,
                        Reason.RUN_ALREADY_COMPLETE,
                        Reason.RUN_EXISTS,
                        Reason.RESUME_FROM_UNUSABLE,
                        Reason.FINAL_CHECKPOINT_NOT_DURABLE,
                    ]
                )
            ),
            message="held",
            since=draw(times),
            retry_at=draw(maybe_time),
            generation=draw(st.integers(1, 2)),
        )
    conditions = []
    ended = draw(st.sampled_from([None, None, None, ConditionType.COMPLETE, ConditionType.FAILED]))
    if ended is not None:
        conditions = [
            Condition(type=ended, status="True", reason="Succeeded", last_transition_time=NOW)
        ]
    used = draw(st.integers(0, 3))
    return Status(
        attempt=attempt,
        starts=draw(st.integers(0, 3)),
        current=CurrentAttempt(
            attempt=attempt,
            kind=draw(st.sampled_from(list(RestartKind))),
            cause=Reason.TRAINER_FAILED,
            charge=draw(st.sampled_from(list(Charge))),
            through_store=draw(st.sampled_from([False, False, True])),
            recorded_at=draw(times),
            not_before=draw(st.none() | st.floats(NOW - 60, NOW + 60).map(lambda t: round(t, 3))),
            restored_at=draw(maybe_time) if started else None,
            may_claim=(may_claim := draw(st.booleans())),
            claim_over="cluster/other" if may_claim else None,
            wanted=draw(st.none() | wanted),
        ),
        beginnings=Beginnings(
            wanted=draw(st.none() | wanted),
            acted=draw(st.lists(st.sampled_from(wishes), max_size=2, unique=True)),
            accepted=draw(st.booleans()),
        ),
        placements=[draw(st.integers(1, attempt)) for _ in range(2)],
        resume=draw(st.sampled_from([resume, resume, None])),
        hold=hold,
        budgets=Budgets(restarts_since_progress=used, in_place_failures=draw(st.integers(0, 3))),
        checkpoint=CheckpointStatus(
            last_durable_step=draw(st.none() | st.integers(0, 99)),
            last_durable_name=draw(st.none() | names),
        ),
        ever_durable=draw(st.booleans()),
        conditions=conditions,
    )


@st.composite
def observations(draw: st.DrawFn) -> Observed:
    status = draw(statuses())
    views = [
        draw(pods(rank, made_in))
        for rank in range(2)
        for made_in in sorted(draw(st.sets(st.integers(1, 3), max_size=2)))
    ]
    spec = JobSpec(
        replicas=2,
        run_id="ns/gpt",
        template_hash="h1",
        max_restarts=3,
        suspend=draw(st.sampled_from([False, False, False, True])),
        shared_directory=draw(st.booleans()),
        on_existing_run=draw(st.sampled_from(["Resume", "Resume", "Hold", "Fresh"])),
        take_over=draw(st.sampled_from([None, None, "other", "cluster/other"])),
        resume_from=draw(st.sampled_from([None, None, "f1-n1-s4"])),
        scratch_if_none_valid=draw(st.booleans()),
    )
    problem = SpecProblem(reason=Reason.INVALID_SPEC, message="spec.x: wrong")
    unreadable = draw(st.integers(0, 15)) == 0
    return Observed(
        now=NOW,
        job=JobView(
            key=JobKey("ns", "gpt"),
            uid=UID,
            resource_version="3",
            generation=2,
            deleting=draw(st.integers(0, 15)) == 0,
            spec=None if unreadable else spec,
            status=status,
            problem=problem if unreadable or draw(st.integers(0, 7)) == 0 else None,
            request=draw(
                st.none()
                | st.builds(
                    wire.Request,
                    id=st.just("1"),
                    action=st.sampled_from(list(wire.RequestAction)),
                    save=st.sampled_from([None, "f1-n1-s4", "no save"]),
                )
            ),
        ),
        pods=tuple(views),
        nodes={
            name: NodeView(
                name=name,
                exists=draw(st.sampled_from([True, True, True, False])),
                ready=draw(st.sampled_from([True, True, False, None])),
                not_ready_since=draw(maybe_time),
                lease_renewed_at=draw(maybe_time),
            )
            for name in draw(st.sets(nodes, max_size=3))
        },
        reports={p.uid: draw(reports(p.uid, p.rank)) for p in views if draw(st.booleans())},
        stale_lease_share=draw(st.sampled_from([0.0, 0.3, 0.9])),
        owner_lives=draw(
            st.dictionaries(st.sampled_from(["cluster/other"]), st.booleans(), max_size=1)
        ),
    )


laws = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def status_of(observed: Observed) -> Status:
    assert observed.job is not None
    return observed.job.status


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
        for rank, made_in in enumerate(status.placements):
            name = contract.pod_name(job="gpt", rank=rank, made_in=made_in, job_uid=UID)
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
    created = [a.name for a in plan.actions if isinstance(a, CreatePod)]
    existing = {p.name for p in observed.pods}
    assert len(created) == len(set(created))
    assert not existing & set(created), "never a twin"
    for action in plan.actions:
        match action:
            case CreatePod():
                assert action.made_in == status.placements[action.rank] == status.attempt
                assert not status.is_started, "after the start a missing pod is a loss"
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


@laws
@given(observations())
def test_a_held_job_loses_no_pod_with_a_save_that_is_not_durable(observed: Observed) -> None:
    status = status_of(observed)
    assume(status.hold is not None and not status.is_terminal)
    plan = decide(observed)
    own = {
        contract.pod_name(job="gpt", rank=r, made_in=m, job_uid=UID)
        for r, m in enumerate(status.placements)
    }
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
