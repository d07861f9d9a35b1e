"""Pods, directives and reports as hypothesis draws them, sensible or not."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from rtj_api import contract, wire
from rtj_api.reasons import Reason
from rtj_operator.core.observed import ContainerEnd, ContainerView, PodView, ReportView

from kit.drawn_trouble import costs, health, maybe_seconds, words

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
        stop_step=draw(st.sampled_from([None, None, 40])),
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


@st.composite
def spares(draw: st.DrawFn, spare: int, made_in: int) -> PodView:
    """One that waits, or that has taken a rank."""
    pod = draw(pods(draw(st.sampled_from([contract.NO_RANK, contract.NO_RANK, 0, 1])), made_in))
    name = contract.spare_name(job="gpt", spare=spare, made_in=made_in, job_uid=UID)
    uid = f"s{spare}-{made_in}"
    said = draw(st.none() | directives(uid, draw(st.integers(0, 1))))
    return replace(pod, name=name, uid=uid, spare=spare, directive=said)


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
        term_received_at=draw(maybe_time),
        can_stop=draw(st.booleans()),
        stop_step=draw(st.sampled_from([None, None, 40])),
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
            tail=draw(words),
        ),
        problem=draw(st.none() | problems),
        standby=draw(st.none() | st.builds(wire.StandbyView, spare=st.just(0), name=names)),
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
            step=draw(st.none() | st.integers(0, 99)),
            updated_at=draw(maybe_time),
            first_step_at=draw(maybe_time),
            confirmed=draw(st.booleans()),
            step_seconds=draw(maybe_seconds),
            pace_seconds=draw(maybe_seconds),
        ),
        checkpoint=wire.CheckpointView(
            last_durable_step=draw(st.none() | st.integers(0, 99)),
            last_durable_at=draw(maybe_time),
            last_durable_name=draw(st.none() | names),
            pending_saves=draw(st.integers(0, 2)),
            **draw(costs),
        ),
        **draw(health(times)),
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
