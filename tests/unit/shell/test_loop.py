"""Observe, decide, apply, re-queue: with an in-memory cluster and a decision made up here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.loop import EMPTY, KEY, create, deciding, pod_name, script, turn
from rtj_api import contract, wire
from rtj_api.reasons import Reason
from rtj_api.status import Status
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import (
    CreateSpare,
    DeleteJob,
    DeletePod,
    Note,
    PatchDirective,
    Plan,
)
from rtj_operator.shell.api import ApiError


async def test_a_job_that_is_gone_is_forgotten(cluster, raw_job, make_app) -> None:
    app = make_app(script())
    cluster.add_job(raw_job())
    await turn(app)
    assert len(app.metrics.jobs) == 1
    cluster.jobs.clear()
    assert await turn(app) is None
    assert len(app.metrics.jobs) == 0


async def test_a_decision_is_written_and_carried_out_without_reading_again(
    cluster, raw_job, make_app
) -> None:
    job = cluster.add_job(raw_job())
    uid = job["metadata"]["uid"]
    acting = Plan(rule="Make", why="missing", actions=(create(0, uid), create(1, uid)))
    await turn(make_app(script(deciding(Status(attempt=1)), acting)))
    assert cluster.jobs["team", "gpt"]["status"]["attempt"] == 1
    assert set(cluster.pods) == {("team", pod_name(rank, uid)) for rank in (0, 1)}
    assert cluster.calls.count("get_job") == 1
    assert cluster.calls.index("put_status") < cluster.calls.index("create_pod")


async def test_the_next_plan_sees_what_was_written_and_made(cluster, raw_job, make_app) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]
    seen: list[Observed] = []

    def last(observed: Observed) -> Plan:
        seen.append(observed)
        return EMPTY

    await turn(
        make_app(
            script(
                deciding(Status(attempt=4)),
                Plan(rule="Make", why="", actions=(create(1, uid),)),
                last,
            )
        )
    )
    (observed,) = seen
    assert observed.job is not None
    assert observed.job.status.attempt == 4
    assert [pod.rank for pod in observed.pods] == [1]


async def test_after_a_deletion_the_world_is_read_again(cluster, raw_job, make_app) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]
    await turn(make_app(script(Plan(rule="Make", why="", actions=(create(0, uid),)))))
    (pod,) = cluster.pods.values()
    doomed = DeletePod(name=pod["metadata"]["name"], uid=pod["metadata"]["uid"])
    cluster.calls.clear()
    await turn(make_app(script(Plan(rule="Drop", why="", actions=(doomed,)))))
    assert not cluster.pods
    assert cluster.calls.count("list_pods") == 2


@pytest.mark.parametrize("uid", ["another", "gone"])
async def test_deleting_what_is_gone_or_another_is_success(cluster, raw_job, make_app, uid) -> None:
    job_uid = cluster.add_job(raw_job())["metadata"]["uid"]
    await turn(make_app(script(Plan(rule="Make", why="", actions=(create(0, job_uid),)))))
    (name,) = (name for _, name in cluster.pods)
    target = DeletePod(name=name if uid == "another" else "no-such", uid=uid)
    app = make_app(script(Plan(rule="Drop", why="", actions=(target,))))
    await turn(app)
    assert len(cluster.pods) == 1
    assert app.queue.counters.retries == 0


async def test_a_job_is_deleted_only_as_the_version_that_was_seen(
    cluster, raw_job, make_app
) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]

    def drop(version: str) -> Plan:
        return Plan(rule="Expire", why="", actions=(DeleteJob(uid=uid, resource_version=version),))

    old = make_app(script(drop("another")))
    await turn(old)
    assert old.queue.counters.retries == 1
    (job,) = cluster.jobs.values()
    await turn(make_app(script(drop(job["metadata"]["resourceVersion"]))))
    assert cluster.jobs == {}


async def test_a_pod_that_exists_and_is_ours_counts_as_made(cluster, raw_job, make_app) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]
    plan = Plan(rule="Make", why="", actions=(create(0, uid),))
    app = make_app(script(plan, plan))
    await turn(app)
    assert app.queue.counters.retries == 0
    assert len(cluster.pods) == 1


async def test_a_pod_of_the_same_name_that_is_not_ours_is_a_rejection(
    cluster, raw_job, make_app
) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]
    name = pod_name(0, uid)
    cluster.pods["team", name] = {
        "metadata": {"namespace": "team", "name": name, "uid": "x", "labels": {}}
    }
    seen: list[Observed] = []
    plan = Plan(rule="Make", why="", actions=(create(0, uid),))
    await turn(make_app(script(plan, lambda o: seen.append(o) or EMPTY)))
    assert "remove it" in seen[0].rejections[name].message


async def test_the_plans_own_time_is_kept_and_no_job_waits_longer_than_the_resync(
    cluster, raw_job, make_app
) -> None:
    cluster.add_job(raw_job())
    app = make_app(lambda o: replace(EMPTY, wake_at=o.now + 7))
    assert await turn(app) == pytest.approx(7, abs=0.5)
    app = make_app(lambda o: replace(EMPTY, wake_at=o.now + 70_000))
    delay = await turn(app)
    assert delay is not None
    assert 200 < delay <= 300


async def test_a_directive_is_patched_with_the_pods_version(cluster, raw_job, make_app) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]

    def direct(observed: Observed) -> Plan:
        (pod,) = observed.pods
        order = wire.Directive(
            job_uid=uid, pod_uid=pod.uid, rank=0, attempt=1, seq=1,
            phase=wire.Phase.PREPARE, world_size=2,
        )  # fmt: skip
        patch = PatchDirective(
            pod=pod.name, uid=pod.uid, resource_version=pod.resource_version, directive=order
        )
        return Plan(rule="Direct", why="", actions=(patch,))

    seen: list[Observed] = []
    plan = Plan(rule="Make", why="", actions=(create(0, uid),))
    await turn(make_app(script(plan, direct, lambda o: seen.append(o) or EMPTY)))
    directive = seen[0].pods[0].directive
    assert directive is not None
    assert (directive.attempt, directive.phase) == (1, "prepare")
    assert cluster.calls.count("list_pods") == 1


async def test_a_spare_gets_its_labels_with_its_first_directive(cluster, raw_job, make_app) -> None:
    raw = raw_job()
    raw["metadata"]["uid"] = "abcd0000-0000"
    raw["spec"]["recovery"] = {"spares": 1}
    uid = cluster.add_job(raw)["metadata"]["uid"]
    name = contract.spare_name(job="gpt", spare=0, made_in=1, job_uid=uid)

    def direct(observed: Observed) -> Plan:
        (pod,) = observed.pods
        assert (pod.spare, pod.rank) == (0, contract.NO_RANK)
        order = wire.Directive(
            job_uid=uid, pod_uid=pod.uid, rank=1, attempt=2, seq=1,
            phase=wire.Phase.PREPARE, world_size=2,
        )  # fmt: skip
        patch = PatchDirective(
            pod=pod.name, uid=pod.uid, resource_version=pod.resource_version, directive=order,
            labels_rank=True,
        )  # fmt: skip
        return Plan(rule="Direct", why="", actions=(patch,))

    make = CreateSpare(spare=0, made_in=1, name=name, shun_nodes=("bad",))
    await turn(make_app(script(Plan(rule="Make", why="", actions=(make,)), direct)))
    (pod,) = cluster.pods.values()
    labels = pod["metadata"]["labels"]
    assert pod["metadata"]["name"] == name
    assert (labels[contract.LABEL_RANK], labels[contract.LABEL_ROLE]) == ("1", "rank")
    assert "bad" in str(pod["spec"]["affinity"]["nodeAffinity"])
    assert cluster.calls.count("annotate_pod") == 1


async def test_notes_become_events_only_after_the_write(cluster, raw_job, make_app) -> None:
    import asyncio

    cluster.add_job(raw_job())
    note = Note(type="Warning", reason=Reason.OUT_OF_MEMORY, message="rank 1 was killed")

    def refuse(call: str) -> None:
        if call == "put_status":
            raise ApiError(status=500, message="no")

    cluster.fail = refuse
    app = make_app(script(deciding(Status(attempt=1), note), deciding(Status(attempt=1), note)))
    recorder = asyncio.create_task(app._recorder.run())
    await turn(app)
    await app.drained()
    assert not cluster.events
    cluster.fail = lambda _: None
    await turn(app)
    await app.drained()
    recorder.cancel()
    (event,) = cluster.events.values()
    assert (event["reason"], event["note"]) == ("OutOfMemory", "rank 1 was killed")
    assert event["regarding"]["uid"] == cluster.jobs["team", "gpt"]["metadata"]["uid"]


async def test_our_own_write_coming_back_is_no_reason_to_look(cluster, raw_job, make_app) -> None:
    cluster.add_job(raw_job())
    app = make_app(script(deciding(Status(attempt=1))))
    await turn(app)
    version = cluster.jobs["team", "gpt"]["metadata"]["resourceVersion"]
    app.job_changed(KEY, resource_version=version)
    assert app.queue.depth == 0
    app.job_changed(KEY, resource_version="newer")
    assert app.queue.depth == 1


async def test_our_own_pods_coming_back_are_no_reason_to_look(cluster, raw_job, make_app) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]
    app = make_app(script(Plan(rule="Make", why="", actions=(create(0, uid),))))
    await turn(app)
    (pod,) = cluster.pods.values()
    known = {"uid": pod["metadata"]["uid"]}
    version = pod["metadata"]["resourceVersion"]
    app.pod_changed(KEY, **known, resource_version=version)
    assert app.queue.depth == 0
    app.pod_changed(KEY, **known, resource_version=version)
    assert app.queue.depth == 1, "only its first return is ours"
    await turn(app)
    app.pod_changed(KEY, **known, resource_version=None)
    assert app.queue.depth == 1, "a deletion is news"


async def test_a_node_event_looks_at_the_jobs_on_it(cluster, raw_job, make_app) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]
    await turn(make_app(script(Plan(rule="Make", why="", actions=(create(0, uid),)))))
    (pod,) = cluster.pods.values()
    pod["spec"]["nodeName"] = "node-1"
    cluster.nodes["node-1"] = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    app = make_app(script())
    await turn(app)
    app.node_changed("node-2", None)
    assert app.queue.depth == 0
    app.node_changed("node-1", None)
    assert app.queue.depth == 1
