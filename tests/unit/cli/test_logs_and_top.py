"""Logs of all ranks as one, and what each rank's sidecar says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from kit.scenarios import SCENARIOS
from kit.stub_kubectl import StubKubectl, job_of
from rtj_api import contract, wire
from rtj_api.status import Status
from rtj_cli.merging import Line, lines_of, merged, prefixed, sources, stamped

Rtj = Callable[..., Any]


def pod(rank: int | None, name: str, **status: Any) -> dict[str, Any]:
    labels = {contract.LABEL_JOB: "gpt"} | (
        {} if rank is None else {contract.LABEL_RANK: str(rank)}
    )
    config = {"name": contract.ENV_CONFIG, "value": json.dumps({"statusPort": 9900})}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "nodeName": f"node-{rank}",
            "containers": [
                {"name": "helper", "command": ["sleep"]},
                {"name": "main", "command": [contract.SUPERVISE, "--", "python"]},
            ],
            "initContainers": [{"name": contract.CONTAINER_SIDECAR, "env": [config]}],
        },
        "status": {"phase": "Running", **status},
    }


@pytest.fixture(scope="module")
def running() -> Status:
    return SCENARIOS["crash_in_place"].run().world.state


@pytest.fixture
def gang(cluster: StubKubectl, running: Status) -> StubKubectl:
    cluster.job(job_of(running))
    cluster.pods(pod(1, "gpt-1-1-abcd"), pod(0, "gpt-0-1-abcd"), pod(None, "gpt-s0-1-abcd"))
    cluster.log(
        "gpt-0-1-abcd",
        "1970-01-01T00:16:45.000000001Z step 3\n"
        "1970-01-01T00:16:53.5Z step 9\n"
        "a line without a time\n",
    )
    cluster.log(
        "gpt-1-1-abcd",
        "1970-01-01T00:16:44.999999999Z step 3\n1970-01-01T00:16:53.250000000Z step 9 [x]\n",
    )
    return cluster


def test_ranks_are_merged_by_time_with_rank_and_attempt(rtj: Rtj, gang: StubKubectl) -> None:
    assert rtj("logs", "gpt").out.splitlines() == [
        "[1 #1] step 3",
        "[0 #1] step 3",
        "[1 #2] step 9 [x]",
        "[0 #2] step 9",
        "[0 #2] a line without a time",
    ]
    asked = [line for line in gang.asked() if "logs" in line]
    assert all("-c main --timestamps" in line for line in asked)


def test_one_attempt_one_rank_and_a_tail(rtj: Rtj, gang: StubKubectl) -> None:
    assert rtj("logs", "gpt", "--attempt", 1).out == "[1 #1] step 3\n[0 #1] step 3\n"
    said = rtj("logs", "gpt", "--rank", 1, "--tail", 9, "--since", "1h", "--timestamps")
    assert said.out.startswith("1970-01-01T00:16:44.999999Z [1 #1] step 3\n")
    assert "--tail=9 --since=1h" in gang.asked()[-1]
    assert "rtj-sidecar" in gang.asked()[-1] or rtj("logs", "gpt", "-c", "rtj-sidecar")
    assert "-c rtj-sidecar" in gang.asked()[-1]


def test_an_attempt_whose_pods_are_gone_is_read_from_the_store(
    rtj: Rtj, cluster: StubKubectl, running: Status, tmp_path: Any
) -> None:
    root = tmp_path / "store" / "ns" / "gpt"
    (root / "logs" / "1").mkdir(parents=True)
    (root / "run.json").write_text("{}")
    (root / "logs" / "1" / "0.txt").write_text("the end of rank 0\n")
    raw = job_of(running)
    raw["spec"]["checkpoint"]["store"]["url"] = (tmp_path / "store").as_uri()
    cluster.job(raw)
    cluster.pods()
    assert rtj("logs", "gpt", "--attempt", 1).out == "[0 #1] the end of rank 0\n"
    assert "is left" in rtj("logs", "gpt", "--attempt", 9, code=3).words


def test_ranks_without_a_pod_of_that_attempt_are_added_from_the_store(
    rtj: Rtj, gang: StubKubectl, running: Status, tmp_path: Any
) -> None:
    root = tmp_path / "store" / "ns" / "gpt"
    (root / "logs" / "2").mkdir(parents=True)
    (root / "run.json").write_text("{}")
    (root / "logs" / "2" / "1.txt").write_text("kept of rank 1\n")
    (root / "logs" / "2" / "0.txt").write_text("not asked for\n")
    raw = job_of(running)
    raw["spec"]["checkpoint"]["store"]["url"] = (tmp_path / "store").as_uri()
    gang.job(raw)
    gang.log("gpt-1-1-abcd", "")
    out = rtj("logs", "gpt", "--attempt", 2).out
    assert out.splitlines() == [
        "[0 #2] step 9",
        "[0 #2] a line without a time",
        "[1 #2] kept of rank 1",
    ]
    raw["spec"]["checkpoint"]["store"]["url"] = (tmp_path / "nowhere").as_uri()
    gang.job(raw)
    assert rtj("logs", "gpt", "--attempt", 2).out.count("\n") == 2


def test_following_ends_with_the_job(rtj: Rtj, cluster: StubKubectl) -> None:
    cluster.job(job_of(SCENARIOS["runs_to_the_end"].run().world.state))
    cluster.pods(pod(0, "gpt-0-1-abcd"), pod(1, "gpt-1-1-abcd", phase="Pending"))
    cluster.log("gpt-0-1-abcd", "1970-01-01T00:16:45Z the end\n")
    assert rtj("logs", "gpt", "-f").out == "[0 #1] the end\n"


def test_lines() -> None:
    assert stamped("2026-01-01T00:00:00.123456789Z a b", rank=0).text == "a b"
    assert stamped("2026-01-01T00:00:00Z x", rank=0).at == 1767225600.0
    assert stamped("2026-01-01T00:00:00.12Z x", rank=0).at == 1767225600.12
    assert stamped("no time here", rank=2, before=7.0) == Line(7.0, 2, "no time here")
    assert stamped("1.x y", rank=2, before=7.0) == Line(7.0, 2, "1.x y")
    one = lines_of(["1970-01-01T00:00:02Z b", "1970-01-01T00:00:01Z late"], rank=0)
    two = lines_of(["1970-01-01T00:00:01Z a"], rank=1)
    assert [line.text for line in merged([one, two])] == ["a", "b", "late"]
    assert prefixed(Line(0.0, 3, "x"), attempt=None, ranks=16) == "[ 3] x"
    assert prefixed(Line(0.0, -1, "x"), attempt=2, ranks=2) == "[s #2] x"
    (found,) = sources([pod(1, "a"), pod(0, "b")], rank=1, container=None)
    assert (found.pod, found.container) == ("a", "main")


def report(rank: int, **fields: Any) -> dict[str, Any]:
    return wire.Report(
        jobUID="1", podUID="2", rank=rank, bootID="3", sequence=1, sent_at=1.0, **fields
    ).dump()


def test_top_has_a_row_a_rank(rtj: Rtj, gang: StubKubectl) -> None:
    gang.report(
        "gpt-0-1-abcd",
        report(
            0,
            attempt=2,
            phase=wire.SidecarPhase.TRAINING,
            progress=wire.ProgressView(step=17, pace_seconds=0.25, loss=1.5),
            checkpoint=wire.CheckpointView(pending_saves=2, pending_bytes=5, last_saved_at=1.0),
            degraded=[wire.Problem(reason="DiskFull", message="m", since=1.0)],
        ),
    )
    said = rtj("top", "gpt", "-o", "json")
    zero, one, spare = json.loads(said.out)
    assert (zero["rank"], zero["step"], zero["stepsPerSecond"]) == (0, 17, 4.0)
    assert zero["uploadLagSeconds"] > 1e6
    assert zero["problems"] == ["DiskFull"]
    assert (one["rank"], one["step"], one["podPhase"]) == (1, None, "Running")
    assert spare["rank"] is None
    assert "auth can-i" in said.words
    assert any("/gpt-0-1-abcd:9900/proxy/status?job=" in line for line in gang.asked())
    table = rtj("top", "gpt").out
    for words in ("Training", "(Running)", "spare", "DiskFull", "node-0"):
        assert words in table, words


def test_top_of_a_job_without_pods(rtj: Rtj, cluster: StubKubectl, running: Status) -> None:
    cluster.job(job_of(running))
    cluster.pods()
    assert "has no pods" in rtj("top", "gpt").words
