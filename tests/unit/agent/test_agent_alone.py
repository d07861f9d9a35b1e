"""One pod, a real agent, a real supervisor, a real trainer, a directory as the store."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

from kit import toy_trainer
from kit.alone import begin, committed, newest, result
from kit.orders import SCRATCH, first_start, gone, prepared
from kit.podlike import PodLike, trainer_command
from kit.supervised import wait_for
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, SidecarPhase, TrainerState


def test_first_start_then_a_crash_resumed_in_place_without_a_byte(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = begin(pods, tmp_path)
    report = prepared(pod, 1)
    assert (report.fence, report.listed, report.candidates) == (1, True, [])
    gone(pod, 1)
    pod.until(lambda r: r.checkpoint.last_durable_step)
    pod.kill_trainer()
    crashed = pod.until(lambda r: r.phase in (SidecarPhase.EXITED, SidecarPhase.DRAINED))
    assert crashed.trainer.signal == signal.SIGKILL
    assert crashed.trainer.exit_code == -9
    settled = pod.until(lambda r: not r.settling and r.phase is SidecarPhase.DRAINED)
    best = newest(settled)
    assert best.name in settled.pinned
    pod.direct(Phase.GO, 2, resume=best, fast=True)
    report = pod.until(lambda r: r.attempt == 2 and r.phase is SidecarPhase.TRAINING)
    report = pod.until(lambda r: r.fence == 2)
    assert report.checkpoint.restored_bytes == 0
    report = pod.until(lambda r: r.attempt == 2 and r.phase is SidecarPhase.DRAINED, seconds=60)
    assert report.trainer.exit_code == 0
    assert result(pod) == f"RESULT 200 {toy_trainer.expected(200)}"
    assert f"at step {best.step}" in pod.output()
    manifests = committed(tmp_path / "store")
    assert manifests[-1]["step"] == 200
    assert {m["attempt"] for m in manifests} == {1, 2}
    assert report.checkpoint.last_durable_step == 200
    parent = json.loads((tmp_path / "store/ns/gpt/fences/00000002.json").read_text())["parent"]
    assert parent["name"] == best.name
    tail = (tmp_path / "store/ns/gpt/logs/1/0.txt").read_text()
    assert "step 1 " in tail
    pod.direct(Phase.RELEASE, 2)
    assert pod.trainer is not None
    assert pod.trainer.process.wait(60) == 0
    assert pod.trainer.termination_log.read_text() == "released"
    outcome = json.loads((tmp_path / "store/ns/gpt/fences/00000002.json").read_text())
    assert outcome["outcome"] == "complete"


def test_a_new_pod_restores_from_the_store(pods: list[PodLike], tmp_path: Path) -> None:
    first = begin(pods, tmp_path)
    prepared(first, 1)
    gone(first, 1)
    first.until(lambda r: (r.checkpoint.last_durable_step or 0) >= 30)
    first.end()
    second = begin(pods, tmp_path, made_in=2)
    report = prepared(second, 2)
    best = newest(report)
    assert best.step is not None
    assert best.step >= 30
    gone(second, 2, best)
    report = second.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    assert report.checkpoint.restore_total_bytes > 0
    assert result(second) == f"RESULT 200 {toy_trainer.expected(200)}"


def test_a_bad_object_in_the_store_is_marked_and_the_next_older_offered(
    pods: list[PodLike], tmp_path: Path
) -> None:
    first = begin(pods, tmp_path)
    prepared(first, 1)
    gone(first, 1)
    first.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    first.end()
    manifests = committed(tmp_path / "store")
    assert len(manifests) >= 3
    newest_file = tmp_path / "store/ns/gpt" / manifests[-1]["files"][0]["key"]
    content = bytearray(newest_file.read_bytes())
    content[100] ^= 1
    newest_file.write_bytes(content)
    (tmp_path / "store/ns/gpt" / manifests[-2]["files"][0]["key"]).unlink()
    second = begin(pods, tmp_path, made_in=2)
    report = prepared(second, 2)
    assert {v.name for v in report.verdicts} == {manifests[-1]["name"], manifests[-2]["name"]}
    assert [c.invalid is None for c in report.candidates[:3]] == [False, False, True]
    best = newest(report)
    assert best.name == manifests[-3]["name"]
    gone(second, 2, best)
    second.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    assert result(second) == f"RESULT 200 {toy_trainer.expected(200)}"


def test_a_trainer_that_ignores_its_checkpoint_is_stopped(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = begin(pods, tmp_path)
    pod.config = pod.config.model_copy(update={"resume_args": []})
    pod.kill_agent()
    pod.start_agent()
    first_start(pod)
    pod.until(lambda r: (r.checkpoint.last_durable_step or 0) >= 50)
    pod.kill_trainer()
    report = pod.until(lambda r: r.phase is SidecarPhase.DRAINED and not r.settling)
    best = newest(report)
    pod.direct(Phase.GO, 2, resume=best, fast=True)
    report = pod.until(lambda r: r.attempt == 2 and r.phase is SidecarPhase.FAILED)
    assert report.problem is not None
    assert report.problem.reason == Reason.CHECKPOINT_IGNORED
    assert "--resume" in report.problem.message
    pod.until(lambda r: r.trainer.state is TrainerState.EXITED)
    assert newest(pod.report()).name == best.name
    # What it made goes aside, although it is older than what is restored.
    again = newest(prepared(pod, 3))
    assert again.name == best.name
    pod.direct(Phase.RESTORE, 3, resume=again)
    pod.until_phase(SidecarPhase.RESTORED, 3)
    assert (pod.path / ".rtj/quarantine/3/ckpt_10.pt").exists()
    assert not (pod.path / "ckpt_10.pt").exists()


def test_the_sidecar_may_be_killed_at_any_moment(pods: list[PodLike], tmp_path: Path) -> None:
    pod = begin(pods, tmp_path)
    pod.direct(Phase.PREPARE, 1)
    pod.kill_agent()
    pod.start_agent()
    prepared_report = pod.until_phase(SidecarPhase.PREPARED, 1)
    assert prepared_report.fence == 1
    pod.direct(Phase.RESTORE, 1, resume=SCRATCH)
    pod.kill_agent()
    pod.start_agent()
    pod.until_phase(SidecarPhase.RESTORED, 1)
    pod.direct(Phase.GO, 1, resume=SCRATCH)
    pod.kill_agent()
    pod.start_agent()
    pod.until(lambda r: r.phase is SidecarPhase.TRAINING)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for step in (20, 50, 90, 130):
        pod.until(lambda r, step=step: (r.checkpoint.last_durable_step or 0) >= step)
        time.sleep(chance.uniform(0, 0.5))  # anywhere between two looks, names or commits
        pod.kill_agent()
        pod.start_agent()
    report = pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    assert report.trainer.exit_code == 0
    assert report.checkpoint.last_durable_step == 200
    assert pod.output().count("starting at step 0") == 1
    assert result(pod) == f"RESULT 200 {toy_trainer.expected(200)}"
    steps = [m["step"] for m in committed(tmp_path / "store")]
    assert steps == sorted(steps)
    assert len(set(steps)) == len(steps)


def test_a_killed_sidecar_learns_of_a_crash_that_it_missed(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = begin(pods, tmp_path)
    first_start(pod)
    pod.until(lambda r: r.checkpoint.last_durable_step)
    pod.kill_agent()
    pod.kill_trainer()
    pod.start_agent()
    report = pod.until(lambda r: r.phase is SidecarPhase.DRAINED)
    assert report.trainer.signal == 9
    assert newest(report).name in report.pinned


def test_a_pod_that_is_ended_drains_and_is_released(pods: list[PodLike], tmp_path: Path) -> None:
    pod = begin(pods, tmp_path)
    first_start(pod)
    pod.until(lambda r: r.checkpoint.last_saved_step)
    assert pod.trainer is not None
    pod.trainer.terminate()
    report = pod.until(lambda r: r.terminating)
    assert report.trainer.attempt == 1
    assert pod.trainer.process.wait(60) == 0
    assert pod.trainer.termination_log.read_text() == "released"
    steps = [m["step"] for m in committed(tmp_path / "store")]
    saved = max(int(f.stem.split("_")[1]) for f in pod.path.glob("ckpt_*.pt"))
    assert max(steps) == saved


def test_a_suspend_stops_with_grace_and_drains(pods: list[PodLike], tmp_path: Path) -> None:
    pod = begin(pods, tmp_path)
    first_start(pod)
    pod.until(lambda r: r.checkpoint.last_saved_step)
    pod.direct(Phase.STOP, 1, grace=5)
    report = pod.until(lambda r: r.phase is SidecarPhase.DRAINED)
    assert report.trainer.asked_to_stop
    assert report.checkpoint.pending_saves == 0


def test_a_trainer_that_deletes_while_we_upload_loses_nothing(
    pods: list[PodLike], tmp_path: Path
) -> None:
    def command(path: Path) -> list[str]:
        return trainer_command(path, "--keep", "1", "--size", "3000000", "--step-seconds", "0.01")

    pod = begin(pods, tmp_path, command=command)
    first_start(pod)
    report = pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=120)
    assert report.checkpoint.last_durable_step == 200
    assert report.checkpoint.pending_saves == 0
    wait_for(lambda: len(list(pod.path.glob("ckpt_*.pt"))) == 1)
