"""A job that begins from what another's trainer left: real agents, supervisors and trainers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import toy_trainer
from kit.foreign import playbook, torn
from kit.podlike import PodLike, make_pod, trainer_command
from kit.s3 import S3Server, s3_server
from rtj_api.wire import Phase, Report, Resume, SidecarPhase, Wanted

SECONDS = 90.0  # under load


@pytest.fixture
def pods() -> Iterator[list[PodLike]]:
    made: list[PodLike] = []
    yield made
    for pod in made:
        pod.end()


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server(buckets=("checkpoints", "old")) as server:
        yield server


def foreign_saves(directory: Path, *steps: int) -> None:
    """As an uninterrupted run of the toy trainer would have left them."""
    directory.mkdir(parents=True)
    for step in steps:
        whole = {
            "step": step,
            "value": toy_trainer.expected(step),
            "model": {"weight": b"tensor" * 2000},
            "optimizer": {"state": {0: {"exp_avg": [0.0]}}, "param_groups": [{"lr": 0.1}]},
        }
        toy_trainer.save(directory / f"ckpt_{step}.pt", whole)


def begun(pod: PodLike, value: str) -> Report:
    """Trains on from that place: prepare, restore, go."""
    pod.start()
    pod.direct(Phase.PREPARE, 1, wanted=Wanted(value=value, asked=value))
    report = pod.until(lambda r: r.found is not None, seconds=SECONDS)
    assert report.found is not None
    assert report.found.save is not None, report.found.problem
    found = report.found.save
    pod.until_phase(SidecarPhase.PREPARED, 1, seconds=SECONDS)
    resume = Resume(run="ns/gpt", name=found.name, step=found.step, durable=True, asked=value)
    pod.direct(Phase.RESTORE, 1, resume=resume)
    restored = pod.until_phase(SidecarPhase.RESTORED, 1, seconds=SECONDS)
    assert restored.phase is SidecarPhase.RESTORED, restored.problem
    pod.direct(Phase.GO, 1, resume=resume)
    return report


def ends_as_if_uninterrupted(pod: PodLike, *, from_step: int, steps: int = 60) -> None:
    pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=SECONDS)
    text = pod.output()
    assert f"at step {from_step}" in text
    assert f"RESULT {steps} {toy_trainer.expected(steps)}" in text


def sixty(path: Path) -> list[str]:
    return trainer_command(path, steps=60)


def test_a_directory_whose_newest_save_is_torn(pods: list[PodLike], tmp_path: Path) -> None:
    old = tmp_path / "old-run"
    foreign_saves(old, 20, 30, 40)
    newest = old / "ckpt_40.pt"
    newest.write_bytes(torn(newest.read_bytes()))
    pod = make_pod(tmp_path, store=tmp_path / "store", command=sixty)
    pods.append(pod)
    report = begun(pod, str(old))
    assert report.found is not None
    (told,) = report.found.passed_over
    assert told.startswith("ckpt_40.pt: Torn")
    ends_as_if_uninterrupted(pod, from_step=30)
    assert newest.exists(), "the place is only read"
    last = pod.report()
    assert [c.step for c in last.candidates][-1] == 30
    assert last.acted == [str(old)]


def test_a_bucket_path(
    pods: list[PodLike], tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old-run"
    foreign_saves(old, 9, 10)
    for path in old.iterdir():
        s3.client().upload_file(str(path), "old", f"team/run1/{path.name}")
    s3.client().put_object(Bucket="old", Key="team/run10/ckpt_90.pt", Body=b"of another run")
    pod = make_pod(
        tmp_path,
        store="s3://checkpoints/runs",
        store_endpoint=s3.endpoint,
        command=sixty,
        environment=s3.environment(),
    )
    pods.append(pod)
    report = begun(pod, "s3://old/team/run1")
    assert report.found is not None
    assert report.found.save is not None
    assert report.found.save.step == 10
    ends_as_if_uninterrupted(pod, from_step=10)
    assert not list((pod.path / ".rtj").glob("importing/*")), "nothing is left behind"


def test_a_manifest_that_anothers_trainer_keeps(pods: list[PodLike], tmp_path: Path) -> None:
    old = tmp_path / "old-run"
    foreign_saves(old, 20, 30, 40)
    (old / "manifest.json").write_bytes(
        playbook(
            {"path": "/elsewhere/ckpt_20.pt", "step": 20},
            {"path": "ckpt_30.pt", "step": 30},
            {"path": "ckpt_40.pt", "step": 40, "is_valid": False},
            {"path": "ckpt_50.pt", "step": 50},
            latest="ckpt_50.pt",
        )
    )
    pod = make_pod(tmp_path, store=tmp_path / "store", command=sixty)
    pods.append(pod)
    report = begun(pod, str(old / "manifest.json"))
    assert report.found is not None
    told = " ".join(report.found.passed_over)
    assert "ckpt_40.pt: the manifest says that it is not valid" in told
    assert "ckpt_50.pt: the manifest names it and it is not there" in told
    ends_as_if_uninterrupted(pod, from_step=30)
