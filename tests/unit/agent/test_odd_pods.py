"""A sidecar beside a trainer without Python, and one whose port somebody else has."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from kit import toy_trainer
from kit.orders import gone, prepared
from kit.podlike import PodLike, make_pod, trainer_command
from kit.supervised import wait_for
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, Resume, SidecarPhase


def kill_trainer(pod: PodLike) -> None:
    """The child of the shell that is no part of it."""
    assert pod.trainer is not None
    supervisor = pod.trainer.pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    for child in children:
        words = Path(f"/proc/{child}/cmdline").read_text()
        if str(toy_trainer.__file__) in words and "supervise" not in words:
            os.kill(int(child), signal.SIGKILL)
            return
    raise AssertionError(f"no trainer below {supervisor}")


def test_without_python_it_is_saved_killed_and_resumed_all_the_same(
    pods: list[PodLike], tmp_path: Path
) -> None:
    leave = tmp_path / "leave"
    leave.write_text("100")
    limit = ("--limit", str(leave))
    pod = make_pod(
        tmp_path,
        store=tmp_path / "store",
        command=lambda path: trainer_command(path, *limit, steps=200, every=50),
    )
    pod.shell = "sh"
    pods.append(pod.start())
    report = prepared(pod, 1)
    assert Reason.SUPERVISOR_MISSING in {p.reason for p in report.degraded}
    assert pod.output() == "", "nothing trains before its save is in place"
    gone(pod, 1)
    pod.until(lambda r: r.checkpoint.last_durable_step)
    kill_trainer(pod)
    settled = pod.until(lambda r: not r.settling and r.phase is SidecarPhase.DRAINED)
    assert settled.trainer.signal == signal.SIGKILL
    best = next(c for c in settled.candidates if c.invalid is None and c.name in settled.pinned)
    resume = Resume(run="ns/gpt", name=best.name, step=best.step, durable=best.durable)
    leave.write_text("200")
    pod.direct(Phase.GO, 2, resume=resume, fast=True)
    report = pod.until(lambda r: r.attempt == 2 and r.phase is SidecarPhase.DRAINED, seconds=90)
    assert report.trainer.exit_code == 0
    assert f"at step {best.step}" in pod.output()
    assert f"RESULT 200 {toy_trainer.expected(200)}" in pod.output()
    pod.direct(Phase.RELEASE, 2)
    assert pod.trainer is not None
    assert pod.trainer.process.wait(60) == 0
    assert pod.trainer.termination_log.read_text() == "released"


def test_a_taken_port_is_named_and_ends_the_sidecar(pods: list[PodLike], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        pod = make_pod(tmp_path, store=tmp_path / "store", port=port)
        pods.append(pod)
        pod.start_agent()
        assert pod.agent is not None
        assert wait_for(lambda: pod.agent.poll() is not None, seconds=60)  # type: ignore[union-attr]
        assert pod.agent.returncode == 3
        assert f"port {port} is taken on this node" in pod.log()
