"""A fault in every phase of an attempt, in every part: the same end, and the way to it as tabled.

Real operator, API server, sidecars, supervisors, trainers and S3 server; only the kubelet is
played. All chosen cells run side by side, a few at a time; each test waits for its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from kit.cells import CELLS, Cell, Ending, Part, is_long
from kit.end_state import as_statuses, check_status, check_store, check_trainers
from kit.fault_cells import Bench, CellRun, Story
from kit.gated_operator import GATES
from kit.host_kubelet import HostKubelet
from kit.kube import Kube
from kit.long import some
from kit.operator_process import ROOT, OperatorProcess
from kit.s3 import s3_server
from kit.watching import follow
from rtj_api import contract
from rtj_operator.shell.cluster import KubeCluster, load_configuration

pytestmark = [
    pytest.mark.contract,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),  # the first to be asked for waits for those beside it
]

AT_ONCE = 4
HELD = "StoreUnreachable"


@dataclass
class Matrix:
    """The runs of all cells that this session was asked for."""

    bench: Bench
    namespace: dict[bool, str]  # by: is the operator's own column
    cells: list[Cell]
    tasks: dict[Cell, asyncio.Task[Story]] = field(default_factory=dict)

    def begin(self) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(cell: Cell) -> Story:
            async with slots:
                space = self.namespace[cell.part is Part.OPERATOR]
                run = CellRun(self.bench, cell, namespace=space)
                return await run.run()

        self.tasks = {cell: asyncio.create_task(one(cell)) for cell in self.cells}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def matrix(
    request: pytest.FixtureRequest, server: Kube, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Matrix]:
    asked = [
        item.callspec.params.get("cell")
        for item in request.session.items
        if hasattr(item, "callspec") and item.get_closest_marker("skip") is None
    ]
    cells = [cell for cell in asked if isinstance(cell, Cell)]
    place: Path = tmp_path_factory.mktemp("matrix")
    gates = place / "gates"
    gates.mkdir()
    mark = uuid.uuid4().hex[:6]
    spaces = {own: f"faults-{'operator' if own else 'pods'}-{mark}" for own in (False, True)}
    configuration = await load_configuration(kubeconfig=server.kubeconfig)
    cluster = KubeCluster(configuration, user_agent="fault-matrix")
    environment = {GATES: str(gates)}
    environment["PYTHONPATH"] = os.pathsep.join(
        str(ROOT / part) for part in ("crds", "operator", "tests")
    )
    operators = {}
    for own, space in spaces.items():
        server.make_namespace(space)
        operators[space] = OperatorProcess(
            server.kubeconfig,
            space,
            place / f"operator-{own}.log",
            module="kit.gated_operator",
            environment=environment,
        )
    with s3_server() as s3:
        async with HostKubelet(
            cluster, directory=place / "pods", namespaces=tuple(spaces.values())
        ) as kubelet:
            bench = Bench(cluster, kubelet, operators, gates, s3, place)
            watches = [
                asyncio.create_task(
                    follow(
                        cluster,
                        f"/apis/{contract.API_VERSION}/namespaces/{space}/{contract.PLURAL}",
                        saw=bench.saw,
                        gone=bench.gone,
                    )
                )
                for space in spaces.values()
            ]
            await asyncio.gather(*(operator.start() for operator in operators.values()))
            made = Matrix(bench, spaces, cells)
            made.begin()
            yield made
            for task in (*made.tasks.values(), *watches):
                task.cancel()
            await asyncio.gather(*made.tasks.values(), *watches, return_exceptions=True)
            for operator in operators.values():
                await operator.stop()
    for space in spaces.values():
        server.drop_namespace(space)
    await cluster.close()


@pytest.mark.parametrize("cell", some(CELLS, is_long=is_long), ids=lambda cell: cell.id)
async def test_the_end_is_the_same(cell: Cell, matrix: Matrix, tmp_path: Path) -> None:
    story = await matrix.tasks[cell]
    print(told(story, matrix))
    assert story.error is None
    check_end(story, matrix, credentials=tmp_path / "credentials")
    check_way(story)


def check_end(story: Story, matrix: Matrix, *, credentials: Path) -> None:
    statuses = as_statuses(story.statuses)
    check_status(statuses, steps=story.steps)
    check_trainers(list(story.outputs.values()), statuses=statuses, steps=story.steps)
    check_store(
        matrix.bench.s3,
        run_id=f"{story.key.namespace}/{story.key.name}",
        requests=story.requests,
        credentials=credentials,
    )
    left = matrix.bench.kubelet.of_job(story.key.name)
    assert not [pod.name for pod in left if pod.trainer.running or pod.sidecar.running]
    assert not [error for pod in left if (error := matrix.bench.kubelet.errors.get(pod.uid))]


def check_way(story: Story) -> None:
    """It got there as the table says, and what the fault cost was counted as it happened."""
    end, before = story.status, story.before
    tries = [r for r in end["attempts"] if r["attempt"] > before["attempt"]]
    if story.cell.ending is not Ending.HELD:
        # A machine too slow to list the store in time holds as well; that is not the fault's doing.
        tries = [r for r in tries if r["started"] or r["endedBy"] != "HoldEnded"]
    started = [r["started"] for r in tries]
    match story.cell.ending:
        case Ending.KEPT if story.cell.part is Part.POD:
            # An operator that looks while the API server deletes it sees a pod that ends: as such
            # it costs an attempt, which is free as well.
            assert started in ([True], [False, True])
        case Ending.KEPT:
            assert started == [True]
        case Ending.AGAIN:
            assert started == [False, True]
        case Ending.COUNTED:
            assert started == [True, True]
        case Ending.HELD:
            assert started == [*([False] * (len(started) - 1)), True]
            assert any((s.get("hold") or {}).get("reason") == HELD for s in story.statuses)
    blamed = story.cell.part is Part.SUPERVISOR and story.cell.ending is Ending.COUNTED
    assert end["failures"] == (1 if blamed else 0), "only the trainer's own end is its failure"


def told(story: Story, matrix: Matrix) -> str:
    """What a person would look at."""
    lines = [f"{story.cell.id}: {story.status.get('phase')}, before {story.before.get('attempt')}"]
    lines += [json.dumps(record) for record in story.status.get("attempts", ())]
    lines += [json.dumps(s["hold"]) for s in story.statuses if s.get("hold")]
    for name, output in story.outputs.items():
        lines += [f"{name}: {line}" for line in re.findall("BEGIN.*|RESULT.*", output)]
    lines += matrix.bench.kubelet.told(story.key.name)
    records = [f"{r} {a}" for r, a in story.requests if re.search("PUT .*(fences|manifests)/", r)]
    return "\n".join([*lines, *records, f"all files: {matrix.bench.directory}"])
