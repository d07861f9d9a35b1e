"""What one pod begins from: an adopted directory, somebody's data, another job's run, nothing."""

from __future__ import annotations

import pickle
import subprocess
import zipfile
from pathlib import Path

from kit import toy_trainer
from kit.alone import begin, committed, newest, result
from kit.orders import gone, prepared
from kit.podlike import PodLike, make_pod, trainer_command
from kit.trainers.counter import write_checkpoint
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, SidecarPhase, TrainerState


def test_a_start_from_nothing_sets_aside_what_lies_there(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = make_pod(tmp_path, store=tmp_path / "store")
    pods.append(pod)
    pod.path.mkdir(parents=True)
    state = {"step": 70, "value": 5, "model": {"weight": b"x"}, "optimizer": {"state": {}}}
    toy_trainer.save(pod.path / "ckpt_70.pt", state)
    pod.start()
    report = prepared(pod, 1)
    # A run without any save takes what lies in its directory as its beginning …
    assert [c.step for c in report.candidates] == [70]
    assert newest(report).name in report.pinned
    # … unless it is told to start from nothing.
    gone(pod, 1)
    pod.until(lambda r: r.phase is SidecarPhase.TRAINING)
    assert (pod.path / ".rtj/set-aside/1/ckpt_70.pt").exists()


def test_an_adopted_directory_is_resumed_from(pods: list[PodLike], tmp_path: Path) -> None:
    pod = make_pod(tmp_path, store=tmp_path / "store")
    pods.append(pod)
    pod.path.mkdir(parents=True)
    subprocess.run(trainer_command(pod.path, "--step-seconds", "0", steps=70), check=True)
    pod.start()
    best = newest(prepared(pod, 1))
    assert best.step == 70
    gone(pod, 1, best)
    pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    assert result(pod) == f"RESULT 200 {toy_trainer.expected(200)}"
    assert committed(tmp_path / "store")[0]["step"] == 70


def test_data_that_a_person_put_there_is_no_beginning(pods: list[PodLike], tmp_path: Path) -> None:
    pod = make_pod(tmp_path, store=tmp_path / "store")
    pods.append(pod)
    (pod.path / "data").mkdir(parents=True)
    with zipfile.ZipFile(pod.path / "data" / "tokens.pt", "w") as archive:
        archive.writestr("tokens/data.pkl", b"\x80\x02]q\x00.")
        archive.writestr("tokens/version", b"3\n")
    pod.start()
    report = prepared(pod, 1)
    assert report.listed is True
    assert report.candidates == []


def test_without_a_store_it_says_so_and_training_goes_on(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = begin(pods, tmp_path, store=None)
    report = prepared(pod, 1)
    assert report.listed is False
    assert [p.reason for p in report.degraded] == [Reason.INVALID_SPEC]
    gone(pod, 1)
    report = pod.until(lambda r: r.checkpoint.last_saved_step)
    assert report.phase is SidecarPhase.TRAINING


def test_another_jobs_run_is_not_touched_until_it_may_be(
    pods: list[PodLike], tmp_path: Path
) -> None:
    first = begin(pods, tmp_path)
    prepared(first, 1)
    second = begin(pods, tmp_path, made_in=9, job_uid="job-2")
    second.direct(Phase.PREPARE, 1)
    report = second.until_phase(SidecarPhase.PREPARED, 1)
    assert report.phase is SidecarPhase.FAILED
    assert report.problem is not None
    assert report.problem.reason == Reason.RUN_IN_USE
    assert report.fence_owner == "cluster/job-1"
    second.direct(Phase.PREPARE, 1, may_claim=True)
    report = second.until(lambda r: r.phase is SidecarPhase.PREPARED)
    assert report.fence == 2


def test_an_older_pod_of_the_job_claims_nothing(pods: list[PodLike], tmp_path: Path) -> None:
    new = begin(pods, tmp_path, made_in=5)
    prepared(new, 5)
    zombie = begin(pods, tmp_path)
    zombie.direct(Phase.PREPARE, 4)
    report = zombie.until_phase(SidecarPhase.PREPARED, 4)
    assert report.phase is SidecarPhase.FAILED
    assert report.problem is not None
    assert report.problem.reason == Reason.FENCE_TAKEN


def test_what_a_zombie_saves_is_never_a_candidate(pods: list[PodLike], tmp_path: Path) -> None:
    leave = tmp_path / "leave"
    leave.write_text("100")
    limit = ("--limit", str(leave))
    zombie = begin(
        pods, tmp_path, command=lambda path: trainer_command(path, *limit, steps=100_000)
    )
    prepared(zombie, 1)
    gone(zombie, 1)
    zombie.until(lambda r: r.checkpoint.last_durable_step)
    new = begin(pods, tmp_path, made_in=2, command=lambda path: trainer_command(path, steps=300))
    best = newest(prepared(new, 2))
    leave.write_text("100000")  # it goes on and saves beside the new one
    gone(new, 2, best)
    report = zombie.until(lambda r: r.phase is SidecarPhase.FAILED)
    assert report.problem is not None
    assert report.problem.reason == Reason.FENCE_TAKEN
    zombie.until(lambda r: r.trainer.state is TrainerState.EXITED)
    new.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    assert result(new) == f"RESULT 300 {toy_trainer.expected(300)}"
    third = begin(pods, tmp_path, made_in=3)
    for candidate in prepared(third, 3).candidates:
        manifest = next(m for m in committed(tmp_path / "store") if m["name"] == candidate.name)
        assert manifest["fence"] == 2 or (manifest["step"] or 0) <= (best.step or 0)


def test_saves_of_different_units_are_no_beginning_by_a_guess(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = make_pod(tmp_path, store=tmp_path / "store")
    pods.append(pod)
    pod.path.mkdir(parents=True)
    write_checkpoint(pod.path / "ckpt_3.pt", step=500, state=1)
    state = {"epoch": 8, "model": {"weight": b"x"}, "optimizer": {"state": {}}}
    with zipfile.ZipFile(pod.path / "epoch_8.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))
        archive.writestr("archive/version", "3\n")
    pod.start()
    pod.direct(Phase.PREPARE, 1)
    report = pod.until_phase(SidecarPhase.PREPARED, 1)
    assert report.phase is SidecarPhase.FAILED
    assert report.problem is not None
    assert report.problem.reason == Reason.CHECKPOINT_ORDER_UNKNOWN
    assert "ckpt_3.pt" in report.problem.message
    assert "epoch_8.pt" in report.problem.message
    # A person took one away.
    (pod.path / "epoch_8.pt").unlink()
    assert [c.step for c in prepared(pod, 2).candidates] == [500]
