"""Nodes and Leases, fence owners, events, metrics, health and settings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from rtj_api import contract, wire
from rtj_api.reasons import Reason
from rtj_api.status import Budgets, CheckpointStatus, Condition, Status, format_time
from rtj_operator.core.observed import JobKey, ReportView
from rtj_operator.core.plan import Note
from rtj_operator.settings import SettingsError, settings_from
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.events import Recorder
from rtj_operator.shell.health import Pulse, defects
from rtj_operator.shell.metrics import OperatorMetrics
from rtj_operator.shell.nodes import Nodes
from rtj_operator.shell.owners import FenceOwners
from rtj_operator.shell.queue import KeyQueue

KEY = JobKey("team", "gpt")


class Clock:
    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def a_lease(name: str, at: float) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"renewTime": format_time(at)}}


def a_node() -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


# --- nodes -------------------------------------------------------------------------------------


async def test_a_node_is_read_once_and_again_after_a_change(cluster, clock) -> None:
    cluster.nodes["n"] = a_node()
    nodes = Nodes(cluster, clock=clock)
    for _ in range(3):
        views = await nodes.views(["n"], in_doubt=True)
    assert views["n"].ready
    assert cluster.calls.count("get_node") == 1
    del cluster.nodes["n"]
    nodes.changed("n", None)
    assert not (await nodes.views(["n"], in_doubt=True))["n"].exists


async def test_a_slow_clock_of_a_node_does_not_make_it_look_dead(cluster, clock) -> None:
    nodes = Nodes(cluster, clock=clock)
    cluster.nodes["n"] = a_node()
    skew = 90.0  # the node's clock is late
    for _ in range(5):
        cluster.leases = [a_lease("n", clock.now - skew - 3)]
        await nodes.views(["n"], in_doubt=True)
        clock.now += 10
    cluster.leases = [a_lease("n", clock.now - skew)]
    view = (await nodes.views(["n"], in_doubt=True))["n"]
    assert view.lease_renewed_at == pytest.approx(clock.now, abs=0.1)
    assert nodes.stale_share() == 0


async def test_a_lease_that_is_not_renewed_grows_old(cluster, clock) -> None:
    nodes = Nodes(cluster, clock=clock)
    cluster.nodes["n"] = a_node()
    stamp = clock.now
    cluster.leases = [a_lease("n", stamp), a_lease("other", stamp)]
    await nodes.views(["n"], in_doubt=True)
    clock.now += 30
    cluster.leases = [a_lease("n", stamp), a_lease("other", clock.now)]
    view = (await nodes.views(["n"], in_doubt=True))["n"]
    assert view.lease_renewed_at == pytest.approx(stamp, abs=0.1)
    assert nodes.stale_share() == 0.5


SPOT = "aws-node-termination-handler/spot-itn"


def noticed(*, added: float | None = None, written: float | None = None) -> dict[str, Any]:
    """A node with a cloud's notice; and what the object says of when it was given."""
    node = a_node()
    taint = {"key": SPOT, "effect": "NoSchedule"}
    if added is not None:
        taint["timeAdded"] = format_time(added)
    if written is not None:
        fields = {"f:spec": {"f:taints": {}}}
        other = {"time": format_time(written + 500), "fieldsV1": {"f:status": {}}}
        node["metadata"] = {
            "managedFields": [{"time": format_time(written), "fieldsV1": fields}, other]
        }
    return {**node, "spec": {"taints": [taint]}}


@pytest.mark.parametrize(
    ("raw", "ago"),
    [
        ({}, 0.0),  # nothing is said: since it is seen
        ({"added": -20.0}, 20.0),
        ({"written": -20.0}, 20.0),
        ({"added": -30.0, "written": -20.0}, 30.0),
        ({"added": +40.0}, 0.0),  # a clock ahead of ours
        ({"added": -3600.0}, 0.0),  # it should be gone: a clock far behind ours
    ],
)
async def test_a_notice_counts_from_when_it_was_given(
    cluster, clock, raw: dict[str, float], ago: float
) -> None:
    cluster.nodes["n"] = noticed(**{name: clock.now + at for name, at in raw.items()})
    nodes = Nodes(cluster, clock=clock)
    views = await nodes.views(["n"], in_doubt=False)
    assert views["n"].tainted_at == {f"{SPOT}:NoSchedule": clock.now - ago}
    clock.now += 60
    views = await nodes.views(["n"], in_doubt=False)
    assert views["n"].tainted_at == {f"{SPOT}:NoSchedule": clock.now - 60 - ago}


async def test_no_clock_is_believed_against_what_was_seen(cluster, clock) -> None:
    """Its notice bears an older time than a look at which it had none."""
    nodes = Nodes(cluster, clock=clock)
    cluster.nodes["n"] = a_node()
    await nodes.views(["n"], in_doubt=False)
    clock.now += 5
    raw = noticed(added=clock.now - 100)
    cluster.nodes["n"] = raw
    nodes.changed("n", {**raw, "metadata": {"name": "n"}})
    views = await nodes.views(["n"], in_doubt=False)
    assert views["n"].tainted_at == {f"{SPOT}:NoSchedule": clock.now - 5}
    nodes.changed("n", None)
    cluster.nodes["n"] = noticed()
    clock.now += 60
    views = await nodes.views(["n"], in_doubt=False)
    assert views["n"].tainted_at == {f"{SPOT}:NoSchedule": clock.now}, "another node of its name"


async def test_leases_that_could_not_be_read_are_unknown_not_stale(cluster, clock) -> None:
    nodes = Nodes(cluster, clock=clock)
    cluster.nodes["n"] = a_node()
    cluster.leases = [a_lease("n", clock.now)]
    await nodes.views(["n"], in_doubt=True)

    def fail(call: str) -> None:
        if call == "list_leases":
            raise ApiError(status=503, message="no")

    cluster.fail = fail
    clock.now += 60
    view = (await nodes.views(["n"], in_doubt=False))["n"]
    assert view.lease_renewed_at is None


# --- fence owners --------------------------------------------------------------------------------


def reporting(owner: str | None) -> ReportView:
    report = wire.Report(
        job_uid="me", pod_uid="p", rank=0, boot_id="b", sequence=1, sent_at=0, fence_owner=owner
    )
    return ReportView(report=report, received_at=0, connected=True, last_contact=0)


@pytest.mark.parametrize(
    ("owner", "sees_all", "expected"),
    [
        (None, True, {}),
        ("here/me", True, {}),
        ("here/living", True, {"here/living": True}),
        ("here/living", False, {"here/living": True}),
        ("here/gone", True, {"here/gone": False}),
        ("here/gone", False, {}),
        ("elsewhere/gone", True, {}),
        ("nonsense", True, {}),
    ],
)
async def test_only_a_job_that_could_be_seen_is_said_to_be_gone(
    cluster, clock, owner, sees_all, expected
) -> None:
    cluster.add_job({"metadata": {"namespace": "a", "name": "b", "uid": "living"}})
    owners = FenceOwners(cluster, cluster_uid="here", sees_all=sees_all, clock=clock)
    assert await owners.lives([reporting(owner)], job_uid="me") == expected


@pytest.mark.parametrize(
    ("pod", "lives"),
    [
        ({}, True),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"metadata": {"deletionTimestamp": "2001-09-09T01:46:30Z"}}, True),
        ({"metadata": {"deletionTimestamp": "2001-09-09T01:40:00Z"}}, False),  # its node is lost
        ({"metadata": {"ownerReferences": []}}, False),
    ],
)
async def test_a_job_that_is_gone_holds_its_run_while_its_pods_drain(
    cluster, clock, pod: dict, lives: bool
) -> None:
    clock.now = 1_000_000_000.0  # 2001-09-09T01:46:40Z
    owner = {"apiVersion": contract.API_VERSION, "kind": contract.KIND, "controller": True}
    meta = {
        "name": "old-0-1-abcd",
        "namespace": "a",
        "uid": "p",
        "resourceVersion": "1",
        "creationTimestamp": "2001-09-09T01:00:00Z",
        "labels": {contract.LABEL_JOB: "old", contract.LABEL_RANK: "0"},
        "annotations": {contract.ANNOTATION_MADE_IN: "1"},
        "ownerReferences": [{**owner, "uid": "gone"}],
    }
    cluster.pods["a", "old-0-1-abcd"] = {
        "metadata": meta | pod.get("metadata", {}),
        "spec": {"containers": []},
        "status": pod.get("status", {"phase": "Running"}),
    }
    heard = reporting("here/gone")
    holder = wire.Holder(
        owner="here/gone", namespace="a", job="old", attempt=1, fence=1, claimed_at=0
    )
    told = heard.report.model_copy(update={"holder": holder})
    owners = FenceOwners(cluster, cluster_uid="here", sees_all=True, clock=clock)
    seen = await owners.lives([replace(heard, report=told)], job_uid="me")
    assert seen == {"here/gone": lives}


@pytest.mark.parametrize(
    ("namespace", "job"),
    [
        ("../../v1", "old"),
        ("..", "old"),
        ("a/../b", "old"),
        ("a?x", "old"),
        ("A", "old"),
        ("a" * 64, "old"),
        ("a", "old,other"),
        ("a", "!old"),
        ("a", "old)"),
        ("a", "o" * 64),
        ("a\n", "old"),
    ],
)
async def test_a_report_makes_the_operator_ask_for_no_place_of_its_choice(
    cluster, clock, namespace: str, job: str
) -> None:
    """It would ask with rights that the pod has not got."""
    heard = reporting("here/gone")
    holder = wire.Holder(
        owner="here/gone", namespace=namespace, job=job, attempt=1, fence=1, claimed_at=0
    )
    told = heard.report.model_copy(update={"holder": holder})
    owners = FenceOwners(cluster, cluster_uid="here", sees_all=True, clock=clock)
    assert await owners.lives([replace(heard, report=told)], job_uid="me") == {"here/gone": False}
    assert cluster.calls == ["list_jobs"]


# --- events ------------------------------------------------------------------------------------


async def test_a_repeated_event_becomes_a_series(cluster, clock, raw_job) -> None:
    job = cluster.add_job(raw_job())
    recorder = Recorder(cluster, instance="op", clock=clock)
    task = asyncio.create_task(recorder.run())
    same = Note(type="Warning", reason=Reason.NODE_LOST, message="node-1")
    for _ in range(3):
        recorder.post(job, same)
        clock.now += 5
    recorder.post(job, Note(type="Warning", reason=Reason.NODE_LOST, message="node-2"))
    await recorder.drained()
    assert len(cluster.events) == 2
    first = next(e for e in cluster.events.values() if e["note"] == "node-1")
    assert first["series"]["count"] == 3
    clock.now += 4000
    recorder.post(job, same)
    await recorder.drained()
    assert len(cluster.events) == 3
    task.cancel()


async def test_an_event_that_expired_on_the_server_is_posted_anew(cluster, clock, raw_job) -> None:
    job = cluster.add_job(raw_job())
    recorder = Recorder(cluster, instance="op", clock=clock)
    task = asyncio.create_task(recorder.run())
    note = Note(type="Normal", reason=Reason.RESUMED, message="x" * 2000)
    recorder.post(job, note)
    await recorder.drained()
    cluster.events.clear()
    clock.now += 1
    recorder.post(job, note)
    await recorder.drained()
    (event,) = cluster.events.values()
    assert len(event["note"]) == 1024
    task.cancel()


# --- metrics -------------------------------------------------------------------------------------


def samples(metrics: OperatorMetrics) -> dict[str, float]:
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in generate_latest(metrics.registry).decode().splitlines()
        if line[:1] != "#"
    }


def seen(metrics: OperatorMetrics, status: Status, *, version: str = "1") -> None:
    raw = {
        "metadata": {"resourceVersion": version, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": status.dump(),
    }
    metrics.jobs.seen(KEY, raw)


def test_the_issues_five_series_have_exactly_these_names() -> None:
    metrics = OperatorMetrics()
    status = Status(starts=3, restarts=2, failures=1, completions=1, last_start_time=1767225600)
    seen(metrics, status)
    found = samples(metrics)
    labels = '{name="gpt",namespace="team"}'
    assert found[f"training_job_start_count_total{labels}"] == 3
    assert found[f"training_job_restart_count_total{labels}"] == 2
    assert found[f"training_job_failure_count_total{labels}"] == 1
    assert found[f"training_job_successful_completion_total{labels}"] == 1
    assert found[f"training_job_last_start_timestamp_seconds{labels}"] == 1767225600
    assert not [name for name in found if name.endswith("_created") or "_created{" in name]


def test_every_phase_is_always_there_and_one_is_on() -> None:
    metrics = OperatorMetrics()
    seen(metrics, Status(phase="Restoring"))
    phases = {k: v for k, v in samples(metrics).items() if k.startswith("training_job_status_ph")}
    assert len(phases) == 9
    assert sum(phases.values()) == 1
    assert phases['training_job_status_phase{name="gpt",namespace="team",phase="Restoring"}'] == 1


def test_checkpoints_and_restarts_without_progress() -> None:
    metrics = OperatorMetrics()
    seen(
        metrics,
        Status(
            budgets=Budgets(restarts_since_progress=2, infrastructure_since_progress=1),
            checkpoint=CheckpointStatus(
                last_durable_step=70, last_durable_time=1767225600, valid=4, invalid=1
            ),
        ),
    )
    found = samples(metrics)
    labels = '{name="gpt",namespace="team"}'
    assert found[f"training_job_restarts_since_progress{labels}"] == 3
    assert found[f"training_job_last_checkpoint_step{labels}"] == 70
    assert found[f"training_job_last_checkpoint_timestamp_seconds{labels}"] == 1767225600
    assert found[f"training_job_valid_checkpoints{labels}"] == 4
    assert found[f"training_job_invalid_checkpoints{labels}"] == 1


def test_a_newer_status_replaces_an_older_and_a_job_that_is_gone_has_no_series() -> None:
    metrics = OperatorMetrics()
    seen(metrics, Status(starts=1))
    seen(metrics, Status(starts=2), version="2")
    labels = '{name="gpt",namespace="team"}'
    assert samples(metrics)[f"training_job_start_count_total{labels}"] == 2
    metrics.jobs.seen(KEY, None)
    assert not [name for name in samples(metrics) if 'name="gpt"' in name]


def test_reasons_are_those_that_say_something_is_wrong() -> None:
    metrics = OperatorMetrics()
    conditions = [
        Condition(type="Accepted", status="True", reason="Accepted", last_transition_time=0),
        Condition(type="Degraded", status="True", reason="DiskFull", last_transition_time=0),
        Condition(type="Running", status="False", reason="Unschedulable", last_transition_time=0),
    ]
    seen(metrics, Status(conditions=conditions))
    reasons = sorted(
        name.partition('reason="')[2].rstrip('"}')
        for name in samples(metrics)
        if name.startswith("training_job_status_reason")
    )
    assert reasons == ["DiskFull", "Unschedulable"]


# --- health --------------------------------------------------------------------------------------


def test_a_silent_watch_a_stuck_queue_and_a_hanging_pass_are_noticed() -> None:
    clock = Clock(0)
    pulse = Pulse(resources=("pods", "nodes"), clock=clock)
    queue: KeyQueue[str] = KeyQueue(clock=clock)
    clock.now = 600
    pulse.beat("pods")
    assert defects(pulse=pulse, queue=queue) == []
    clock.now = 700
    assert defects(pulse=pulse, queue=queue) == ["the watch of nodes is silent for 700 s"]
    pulse.beat("nodes")
    queue.add("a")
    queue.take()
    queue.add("b")
    clock.now = 900
    assert defects(pulse=pulse, queue=queue) == [
        "a change waits for 200 s",
        "a pass runs for 200 s",
    ]
    assert pulse.has_all


def test_a_replica_that_stands_by_is_well_as_long_as_it_reads_the_lease() -> None:
    clock, silent = Clock(0), [0.0]
    pulse = Pulse(resources=("pods",), clock=clock, standby=lambda: silent[0])
    queue: KeyQueue[str] = KeyQueue(clock=clock)
    clock.now = 5000
    assert defects(pulse=pulse, queue=queue) == []
    silent[0] = 61
    assert defects(pulse=pulse, queue=queue) == [
        "standing by, and the Lease could not be read for 61 s"
    ]
    pulse.begin()
    assert defects(pulse=pulse, queue=queue) == [], "its watches begin now"
    clock.now = 5700
    assert defects(pulse=pulse, queue=queue) == ["the watch of pods is silent for 700 s"]


# --- settings ------------------------------------------------------------------------------------


def test_settings_from_the_environment() -> None:
    settings = settings_from(
        {
            "RTJ_SIDECAR_IMAGE": "sidecar:1",
            "RTJ_WATCH_NAMESPACES": "b, a,,a",
            "RTJ_SIDECAR_RESOURCES": '{"limits": {"cpu": "1"}}',
            "POD_NAME": "operator-0",
        },
        hostname="host",
    )
    assert settings.namespaces == ("a", "b")
    assert settings.sidecar_resources == {"limits": {"cpu": "1"}}
    assert settings.instance == "operator-0"
    assert (settings.health_port, settings.metrics_port) == (8080, 9090)
    assert (settings.lease, settings.lease_seconds, settings.reads_nodes) == (None, 10, True)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RTJ_SIDECAR_IMAGE", " "),
        ("RTJ_SIDECAR_IMAGE_PULL_POLICY", "Sometimes"),
        ("RTJ_LOG_LEVEL", "loud"),
        ("RTJ_HEALTH_PORT", "http"),
        ("RTJ_METRICS_PORT", "99999"),
        ("RTJ_WORKERS", "0"),
        ("RTJ_LEASE", "without-a-namespace"),
        ("RTJ_LEASE_SECONDS", "soon"),
        ("RTJ_READS_NODES", "maybe"),
        ("RTJ_SIDECAR_RESOURCES", "{"),
        ("RTJ_SIDECAR_RESOURCES", '{"cpu": 1}'),
    ],
)
def test_a_bad_variable_is_named(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        settings_from({"RTJ_SIDECAR_IMAGE": "x", variable: value}, hostname="h")
