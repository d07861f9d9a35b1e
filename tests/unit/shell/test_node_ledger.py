"""The node ledger in its ConfigMap: kept, merged, guarded, forgiven; and what it is fed by."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from kit.loop import turn
from prometheus_client import CollectorRegistry, generate_latest
from rtj_api.status import AttemptRecord, Culprit, RestartKind, Status, format_time
from rtj_operator.core.decide import decide as rules
from rtj_operator.core.node_ledger import HEAVY, PLAIN, Mark, NodeFacts
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.node_ledger import KeptLedger

NOW = 1_800_000_000.0
PLACE = ("rto", "nodes")
FACTS = {f"n{i}": NodeFacts(name=f"n{i}") for i in range(4)}


def mark(node: str = "n1", number: int = 1, *, weight: float = PLAIN) -> Mark:
    return Mark(
        id=f"job/{number}", node=node, at=NOW - 60, weight=weight, reason="Xid31", job="ns/gpt"
    )


def empty(cluster) -> None:  # type: ignore[no-untyped-def]
    namespace, name = PLACE
    cluster.config_maps[PLACE] = {
        "metadata": {"namespace": namespace, "name": name, "resourceVersion": "1"}
    }


def keeper(cluster, *, name: str | None = PLACE[1]) -> KeptLedger:  # type: ignore[no-untyped-def]
    return KeptLedger(
        cluster, facts=lambda: FACTS, namespace=PLACE[0], name=name, clock=lambda: NOW
    )


def data_of(cluster) -> dict[str, Any]:  # type: ignore[no-untyped-def]
    data = cluster.config_maps[PLACE].get("data") or {}
    return {node: json.loads(text) for node, text in data.items()}


async def until(condition) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def running():  # type: ignore[no-untyped-def]
    tasks: list[asyncio.Task[None]] = []

    def run(kept: KeptLedger) -> None:
        tasks.append(asyncio.create_task(kept.run()))

    yield run
    for task in tasks:
        task.cancel()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtj_operator.shell.node_ledger.GATHER_SECONDS", 0.01)


async def test_what_is_counted_is_kept_and_outlives_the_operator(cluster, running) -> None:
    empty(cluster)
    first = keeper(cluster)
    running(first)
    first.count([mark(number=1), mark(number=2), mark(number=2)])
    assert [a.node for a in first.advice()] == ["n1"]
    await until(lambda: data_of(cluster))
    kept = data_of(cluster)["n1"]["marks"]
    assert [m["id"] for m in kept] == ["job/1", "job/2"]
    assert kept[0] == {
        "id": "job/1",
        "at": format_time(NOW - 60),
        "weight": 1.0,
        "reason": "Xid31",
        "job": "ns/gpt",
    }
    second = keeper(cluster)
    assert second.advice() == ()
    await second.load()
    assert [a.node for a in second.advice()] == ["n1"]


async def test_a_write_that_lost_is_done_again_on_what_the_other_wrote(cluster, running) -> None:
    empty(cluster)
    lost: list[str] = []

    def other(call: str) -> None:
        if call == "put_config_map" and not lost:
            lost.append(call)
            cluster.config_maps[PLACE]["metadata"]["resourceVersion"] = "77"
            cluster.config_maps[PLACE]["data"] = {
                "n2": json.dumps(
                    {"marks": [{"id": "x", "at": format_time(NOW), "weight": 2, "reason": "y"}]}
                )
            }

    cluster.fail = other
    kept = keeper(cluster)
    running(kept)
    kept.count([mark(weight=HEAVY)])
    await until(lambda: set(data_of(cluster)) == {"n1", "n2"})
    await until(lambda: [a.node for a in kept.advice()] == ["n2"])  # of four, one: the newest


async def test_a_node_that_a_person_forgave_stays_so(cluster, running) -> None:
    empty(cluster)
    kept = keeper(cluster)
    running(kept)
    kept.count([mark(weight=HEAVY)])
    await until(lambda: data_of(cluster))
    cluster.config_maps[PLACE]["data"] = {}
    await kept.load()
    assert kept.advice() == ()
    kept.count([mark(weight=HEAVY)])
    assert kept.advice() == (), "the job's status still shows it"
    kept.count([mark(number=2, weight=HEAVY)])
    assert [a.node for a in kept.advice()] == ["n1"], "a new fault counts"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"marks":[{"id":"x"}]}', '{"marks":[{"at":"soon"}]}', "null"]
)
async def test_a_record_that_cannot_be_read_is_told_and_left_alone(
    cluster, running, caplog, text
) -> None:
    empty(cluster)
    cluster.config_maps[PLACE]["data"] = {"n3": text}
    kept = keeper(cluster)
    running(kept)
    await kept.load()
    assert "cannot be read" in caplog.text
    kept.count([mark()])
    await until(lambda: "n1" in cluster.config_maps[PLACE]["data"])
    assert cluster.config_maps[PLACE]["data"]["n3"] == text


@pytest.mark.parametrize("status", [0, 403, 500])
async def test_an_api_server_that_refuses_costs_nothing_but_the_record(
    cluster, running, status
) -> None:
    empty(cluster)

    def refuse(call: str) -> None:
        if call.endswith("config_map"):
            raise ApiError(status=status, reason="x", message="no")

    cluster.fail = refuse
    kept = keeper(cluster)
    await kept.load()
    running(kept)
    kept.count([mark(weight=HEAVY)])
    await until(lambda: "get_config_map" in cluster.calls[1:])
    calls = cluster.calls.count("get_config_map")
    await asyncio.sleep(0.1)
    assert cluster.calls.count("get_config_map") == calls, "it is not asked again at once"
    assert [a.node for a in kept.advice()] == ["n1"]


@pytest.mark.parametrize("name", [None, "absent"])
async def test_without_a_config_map_it_lives_in_memory(cluster, name) -> None:
    kept = keeper(cluster, name=name)
    await kept.load()
    kept.count([mark(weight=HEAVY)])
    assert [a.node for a in kept.advice()] == ["n1"]
    assert "put_config_map" not in cluster.calls


def test_the_series_of_each_node(cluster) -> None:
    kept, registry = keeper(cluster), CollectorRegistry()
    registry.register(kept)
    kept.count([mark("n1", 1, weight=HEAVY), mark("n2", 2), mark("gone", 3)])
    text = generate_latest(registry).decode()
    assert 'training_node_fault_score{node="n1"} 1.9999' in text
    assert 'training_node_fault_score{node="n2"} 0.9999' in text
    assert "gone" not in text
    assert 'training_node_avoided{node="n1"} 1.0' in text
    assert 'training_node_avoided{node="n2"}' not in text


# --- from a job's status to a pod's manifest -----------------------------------------------------


async def test_a_fault_in_one_jobs_status_moves_the_pods_of_another(
    cluster, raw_job, make_app
) -> None:
    moment = 1_800_000_000.0
    culprit = Culprit(rank=0, node="node-1", signature="Xid79", against_node=HEAVY)
    record = AttemptRecord(
        attempt=2, kind=RestartKind.REPLACE, cause="TrainerFailed", culprit=culprit,
        recorded_at=moment,
    )  # fmt: skip
    other = raw_job(name="other")
    other["status"] = Status(attempt=2, attempts=[record]).dump()
    other["spec"]["suspend"] = True
    cluster.add_job(other)
    cluster.add_job(raw_job())
    app = make_app(rules, clock=lambda: moment + 5)
    await turn(app, key=JobKey("team", "other"))
    await turn(app)
    wishes = [
        pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        for (_, name), pod in cluster.pods.items()
        if name.startswith("gpt-")
    ]
    assert len(wishes) == 2
    demand = {"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}
    assert wishes[0] == [{"weight": 100, "preference": {"matchFields": [demand]}}]


async def test_nothing_is_counted_of_a_job_that_another_controller_runs(
    cluster, raw_job, make_app
) -> None:
    culprit = Culprit(rank=0, node="node-1", against_node=HEAVY)
    record = AttemptRecord(
        attempt=2, kind=RestartKind.REPLACE, cause="TrainerFailed", culprit=culprit, recorded_at=NOW
    )
    job = raw_job(managedBy="kueue.x-k8s.io/multikueue")
    job["status"] = Status(attempt=2, attempts=[record]).dump()
    cluster.add_job(job)
    app = make_app(rules, clock=lambda: NOW + 5)
    await turn(app)
    assert app.node_ledger.advice() == ()


# --- from a Node's own words ---


async def test_the_watch_tells_of_all_nodes(cluster, raw_job, make_app) -> None:
    app = make_app(rules)
    gone = {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "7"}}
    app.node_changed("n1", {"metadata": {"name": "n1"}, "status": gone})
    assert [a.node for a in app.node_ledger.advice()] == ["n1"]
    app.node_changed("n1", None)
    await until(lambda: app.node_ledger.advice() == ())
