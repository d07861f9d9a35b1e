"""Bad stores and bad disks: training goes on, the trouble is told, nothing torn is committed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import toy_trainer
from kit.orders import SCRATCH, first_start
from kit.podlike import PodLike, free_port, make_pod, trainer_command
from kit.s3 import S3Server, s3_server
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, Report, SidecarPhase
from rtj_sidecar.checkpoints.inspect import inspect_path
from rtj_sidecar.stores.file import FileStore


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def reasons(report: Report) -> set[str]:
    return {problem.reason for problem in report.degraded}


def begin(pods: list[PodLike], tmp_path: Path, **options: object) -> PodLike:
    pod = make_pod(tmp_path, **options)  # type: ignore[arg-type]
    pods.append(pod)
    return pod.start()


def test_s3_end_to_end_with_an_outage_in_the_middle(
    pods: list[PodLike], tmp_path: Path, s3: S3Server
) -> None:
    pod = begin(
        pods,
        tmp_path,
        store=s3.url("outage"),
        store_endpoint=s3.endpoint,
        environment=s3.environment(),
        command=lambda path: trainer_command(path, steps=2000, every=20),
    )
    first_start(pod)
    pod.until(lambda r: r.checkpoint.last_durable_step, seconds=60)
    s3.stop()
    before = pod.report()
    report = pod.until(lambda r: Reason.STORE_UNREACHABLE in reasons(r), seconds=90)
    assert report.phase is SidecarPhase.TRAINING
    report = pod.until(lambda r: r.checkpoint.pending_saves > 0)
    assert (report.progress.step or 0) > (before.progress.step or 0)
    s3.start()
    report = pod.until(
        lambda r: (
            not reasons(r)
            and (r.checkpoint.last_durable_step or 0) > (before.checkpoint.last_durable_step or 0)
        ),
        seconds=90,
    )
    assert report.phase is SidecarPhase.TRAINING
    assert "starting at step 0" in pod.output()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, Reason.CREDENTIALS_REFUSED),
        ({"bucket": "no-such-bucket"}, Reason.BUCKET_MISSING),
        ({"endpoint": "nobody"}, Reason.STORE_UNREACHABLE),
    ],
    ids=["credentials", "bucket", "endpoint"],
)
def test_a_wrong_store_is_named_within_seconds_and_nothing_trains(
    pods: list[PodLike], tmp_path: Path, s3: S3Server, change: dict[str, str], reason: Reason
) -> None:
    environment = {**s3.environment(), **{k: v for k, v in change.items() if k.isupper()}}
    endpoint = f"http://127.0.0.1:{free_port()}" if "endpoint" in change else s3.endpoint
    environment["AWS_ENDPOINT_URL_S3"] = endpoint
    pod = begin(
        pods,
        tmp_path,
        store=f"s3://{change.get('bucket', s3.bucket)}/bad",
        store_endpoint=endpoint,
        environment=environment,
    )
    pod.direct(Phase.PREPARE, 1)
    report = pod.until(lambda r: r.phase is SidecarPhase.PREPARED, seconds=60)
    assert report.listed is False
    report = pod.until(lambda r: reason in reasons(r), seconds=90)
    assert report.fence is None
    assert "starting" not in pod.output()


def test_a_store_that_heals_during_prepare_is_used(pods: list[PodLike], tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.write_text("a file where the directory should be")
    pod = begin(pods, tmp_path, store=store)
    pod.direct(Phase.PREPARE, 1)
    report = pod.until(lambda r: r.phase is SidecarPhase.PREPARED, seconds=90)
    assert report.listed is False
    assert reasons(report)
    store.unlink()
    store.mkdir()
    report = pod.until(lambda r: r.listed, seconds=90)
    assert report.fence == 1
    assert reasons(report) == set()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: a small file system of its own")
def test_a_full_disk_costs_no_training_and_heals(pods: list[PodLike], tmp_path: Path) -> None:
    """A file that is overwritten in place has to be copied, and there is no room for it."""
    volume = tmp_path / "volume"
    volume.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", volume], check=True)
    try:
        pod = begin(
            pods,
            tmp_path,
            store=tmp_path / "store",
            volume=volume,
            command=lambda path: trainer_command(
                path, "--one-file", "--size", "450000", steps=3000, every=150
            ),
        )
        first_start(pod)
        report = pod.until(lambda r: Reason.DISK_FULL in reasons(r))
        assert "ake the volume larger" in report.degraded[0].message
        step = report.progress.step or 0
        report = pod.until(lambda r: (r.progress.step or 0) > step + 20)
        assert report.phase is SidecarPhase.TRAINING
        assert report.checkpoint.last_durable_step is None
        subprocess.run(["mount", "-o", "remount,size=50m", volume], check=True)
        report = pod.until(lambda r: r.checkpoint.last_durable_step, seconds=60)
        assert reasons(report) == set()
        assert report.phase is SidecarPhase.TRAINING
        pod.end()
    finally:
        subprocess.run(["umount", "-l", volume], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: a mount of its own")
def test_a_directory_that_became_read_only_is_told_and_heals(
    pods: list[PodLike], tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", volume], check=True)
    try:
        pod = make_pod(tmp_path, store=tmp_path / "store", volume=volume)
        pods.append(pod)
        subprocess.run(["mount", "-o", "remount,ro", volume], check=True)
        pod.start()
        pod.direct(Phase.PREPARE, 1)
        pod.until_phase(SidecarPhase.PREPARED, 1)
        subprocess.run(["mount", "-o", "remount,rw", volume], check=True)
        state = {"step": 7, "value": 1, "model": {"weight": b"x"}, "optimizer": {"state": {}}}
        toy_trainer.save(volume / "ckpt_7.pt", state)
        subprocess.run(["mount", "-o", "remount,ro", volume], check=True)
        pod.direct(Phase.RESTORE, 1, resume=SCRATCH)
        report = pod.until_phase(SidecarPhase.RESTORED, 1)
        assert report.phase is SidecarPhase.FAILED
        assert report.problem is not None
        assert report.problem.reason == Reason.RESTORE_FAILED
        assert "Read-only" in report.problem.message
        subprocess.run(["mount", "-o", "remount,rw", volume], check=True)
        pod.direct(Phase.PREPARE, 2)
        report = pod.until_phase(SidecarPhase.PREPARED, 2)
        assert report.phase is SidecarPhase.PREPARED
        pod.direct(Phase.RESTORE, 2, resume=SCRATCH)
        assert pod.until_phase(SidecarPhase.RESTORED, 2).phase is SidecarPhase.RESTORED
        pod.end()
    finally:
        subprocess.run(["umount", "-l", volume], check=True)


def test_every_word_about_a_read_only_directory_is_taken_back(
    pods: list[PodLike], tmp_path: Path
) -> None:
    """Read-only again and again under a trainer that forgives, while its saves are on their way."""
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "import toy_trainer\n"
        "out = Path(sys.argv[1]); step = 0\n"
        "while True:\n"
        "    step += 1; time.sleep(0.2); print('step', step, flush=True)\n"
        "    state = {'step': step, 'model': {'weight': b'w' * 100}, 'optimizer': {'state': {}}}\n"
        "    try:\n"
        "        toy_trainer.save(out / f'ckpt_{step}.pt', state)\n"
        "    except OSError as error:\n"
        "        print('not saved', error, flush=True)\n"
    )
    kit = Path(toy_trainer.__file__).parent

    def command(path: Path) -> list[str]:
        return ["env", f"PYTHONPATH={kit}", sys.executable, "-u", "-c", code, str(path)]

    volume = tmp_path / "volume"
    volume.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", volume], check=True)

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", volume], check=True)

    try:
        pod = begin(pods, tmp_path, store=tmp_path / "store", volume=volume, command=command)
        first_start(pod)
        for _ in range(2):
            before = pod.until(lambda r: not r.degraded and r.checkpoint.pending_saves).sequence
            remount("ro")
            pod.until(lambda r: Reason.DIRECTORY_READ_ONLY in reasons(r))
            step = pod.report().progress.step or 0
            pod.until(lambda r, step=step: (r.progress.step or 0) > step + 10)
            remount("rw")
            report = pod.until(lambda r: not r.degraded, seconds=60)
            assert report.sequence > before
        pod.end()
    finally:
        subprocess.run(["umount", "-l", volume], check=True)


def test_nothing_torn_is_ever_committed(pods: list[PodLike], tmp_path: Path) -> None:
    """The trainer is killed again and again, also in the middle of a save."""
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "import toy_trainer\n"
        "out = Path(sys.argv[1]); step = 0\n"
        "while True:\n"
        "    step += 1\n"
        "    state = {'step': step, 'value': step, 'model': {'weight': b'w' * 300000},\n"
        "             'optimizer': {'state': {}}}\n"
        "    whole = out / f'.whole_{step}'\n"
        "    toy_trainer.save(whole, state)\n"
        "    data = whole.read_bytes(); whole.unlink()\n"
        "    print('step', step, flush=True)\n"
        "    with open(out / f'ckpt_{step}.pt', 'wb') as file:\n"
        "        for at in range(0, len(data), 30000):\n"
        "            file.write(data[at:at + 30000]); file.flush(); time.sleep(0.03)\n"
        "    time.sleep(0.3)\n"
    )
    kit = Path(toy_trainer.__file__).parent

    def command(path: Path) -> list[str]:
        return ["env", f"PYTHONPATH={kit}", "python3", "-u", "-c", code, str(path)]

    pod = begin(pods, tmp_path, store=tmp_path / "store", command=command)
    first_start(pod)
    pod.until(lambda r: (r.checkpoint.last_durable_step or 0) >= 1)
    pod.until(lambda r: (r.progress.step or 0) >= 4)
    pod.kill_trainer()
    report = pod.until(lambda r: r.phase is SidecarPhase.DRAINED and not r.settling)
    store = FileStore(tmp_path / "store")
    durable = [c for c in report.candidates if c.durable]
    assert durable
    for candidate in durable:
        place = tmp_path / "store/ns/gpt/checkpoints" / candidate.name
        assert all(verdict.candidate for _, verdict in inspect_path(place))
    assert store.url.startswith("file://")
