"""Any state that the operator may see, drawn by hypothesis; most of it contradictory."""

from __future__ import annotations

from hypothesis import strategies as st
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.rules.elastic import Batch, Elastic
from rtj_api.status import (
    Beginnings,
    Budgets,
    CheckpointStatus,
    Condition,
    ConditionType,
    CurrentAttempt,
    ElasticStatus,
    Hold,
    PendingGrowth,
    PlannedStop,
    RestartKind,
    ResumeDecision,
    StandIn,
    Status,
    WantedBeginning,
)
from rtj_operator.core.observed import JobKey, JobSpec, JobView, NodeView, Observed, SpecProblem

from kit.drawn_pods import (
    NOW,
    UID,
    maybe_time,
    names,
    nodes,
    pods,
    reports,
    spares,
    times,
    wishes,
)
from kit.drawn_trouble import advices, factors, memory, wishes_of_recovery

SPOT = "cloud.google.com/impending-node-termination"
wanted = st.builds(
    WantedBeginning,
    value=st.sampled_from([None, "f1-n1-s4"]),
    asked=st.sampled_from(wishes),
)


@st.composite
def stops(draw: st.DrawFn, attempt: int) -> PlannedStop:
    verdict = draw(st.sampled_from(["Agreed", "Agreed", "Missed", "FinishLast", "TooLate"]))
    return PlannedStop(
        attempt=draw(st.sampled_from([attempt, attempt, attempt - 1])),
        verdict=verdict,
        cause=draw(
            st.sampled_from(
                [Reason.POD_EVICTED, Reason.NODE_LEAVING, Reason.SUSPENDING, Reason.SCALING_UP]
            )
        ),
        ranks=draw(st.lists(st.integers(0, 1), max_size=2, unique=True)),
        step=40 if verdict in ("Agreed", "Missed") else None,
        since=draw(times),
        until=draw(st.none() | st.floats(NOW - 60, NOW + 60).map(lambda t: round(t, 3))),
        message="a pod goes; no more",
    )


elastics = st.none() | st.builds(
    Elastic,
    full=st.just(2),
    sizes=st.just((1, 2)),
    scale_down_after=st.sampled_from([5.0, 100.0]),
    grows=st.booleans(),
    batch=st.none() | st.just(Batch(whole=8, micro=2, procs=1)),
)


def sizes(size: int, attempt: int) -> st.SearchStrategy[ElasticStatus]:
    """What is recorded of a gang of that size; two pods are wanted."""
    return st.builds(
        ElasticStatus,
        size=st.just(size),
        wanted=st.just(2),
        since=times,
        reason=st.sampled_from([Reason.FIRST_START, Reason.SCALED_DOWN, Reason.SCALED_UP]),
        growing=st.none() | st.builds(PendingGrowth, size=st.just(2), since=times, save=names),
        unproved=st.none() | st.integers(1, attempt),
        failed_growths=st.integers(0, 3),
        not_before=maybe_time,
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
    used, size = draw(st.integers(0, 3)), draw(st.sampled_from([2, 2, 2, 1]))
    remembered = draw(memory(now=NOW, attempt=attempt))
    incidents = remembered.pop("incidents")
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
            training_at=draw(maybe_time) if started else None,
            may_claim=(may_claim := draw(st.booleans())),
            claim_over="cluster/other" if may_claim else None,
            wanted=draw(st.none() | wanted),
            varied=draw(factors),
        ),
        beginnings=Beginnings(
            wanted=draw(st.none() | wanted),
            acted=draw(st.lists(st.sampled_from(wishes), max_size=2, unique=True)),
            accepted=draw(st.booleans()),
        ),
        stand_ins=[
            StandIn(rank=rank, spare=rank, made_in=draw(st.integers(1, attempt)))
            for rank in range(size)
            if draw(st.sampled_from([False, False, True]))
        ],
        placements=[draw(st.integers(1, attempt)) for _ in range(size)],
        elastic=draw(st.none() | sizes(size, attempt)),
        resume=draw(st.sampled_from([resume, resume, None])),
        hold=hold,
        stop=draw(st.none() | stops(attempt)),
        budgets=Budgets(
            restarts_since_progress=used,
            in_place_failures=draw(st.integers(0, 3)),
            incidents=incidents,
        ),
        **remembered,
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
    views += [
        draw(spares(spare, made_in))
        for spare in range(2)
        for made_in in sorted(draw(st.sets(st.integers(1, 3), max_size=2)))
    ]
    spec = JobSpec(
        replicas=2,
        spares=draw(st.integers(0, 2)),
        run_id="ns/gpt",
        template_hash="h1",
        max_restarts=3,
        suspend=draw(st.sampled_from([False, False, False, True])),
        shared_directory=draw(st.booleans()),
        obeys_stop=draw(st.booleans()),
        suspend_wait_seconds=draw(st.sampled_from([0, 60])),
        on_existing_run=draw(st.sampled_from(["Resume", "Resume", "Hold", "Fresh"])),
        take_over=draw(st.sampled_from([None, None, "other", "cluster/other"])),
        resume_from=draw(st.sampled_from([None, None, "f1-n1-s4"])),
        scratch_if_none_valid=draw(st.booleans()),
        rank_zero_decides=draw(st.booleans()),
        target_step=draw(st.sampled_from([None, None, 4, 1000])),
        active_deadline_seconds=draw(st.sampled_from([None, None, None, 1, 10_000])),
        start_deadline_seconds=draw(st.sampled_from([None, None, 1, 10_000])),
        ttl_seconds_after_finished=draw(st.sampled_from([None, 0, 10_000])),
        elastic=draw(elastics),
        **draw(wishes_of_recovery),
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
                taints=draw(st.sampled_from([(), (), (f"{SPOT}:NoSchedule",)])),
            )
            for name in draw(st.sets(nodes, max_size=3))
        },
        reports={p.uid: draw(reports(p.uid, p.rank)) for p in views if draw(st.booleans())},
        node_advice=draw(advices),
        stale_lease_share=draw(st.sampled_from([0.0, 0.3, 0.9])),
        owner_lives=draw(
            st.dictionaries(st.sampled_from(["cluster/other"]), st.booleans(), max_size=1)
        ),
    )
