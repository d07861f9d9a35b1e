"""One volume that all pods write, no store beside it: every fault is survived, nothing mixes.

The trainer keeps a journal of what it wrote in which attempt (kit/trainers/witness.py), and resumes
from its own newest file: a file of another attempt in its way would be found by it, and by us.
"""

from __future__ import annotations

import hashlib
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.rtj import Job
from kit.stack import Stack
from kit.trainers.counter import next_state

SAVE_EVERY = 5
WRITES_ON_SECONDS = 60.0


@dataclass(frozen=True)
class Line:
    at: float
    word: str
    step: int


@dataclass(frozen=True)
class Volume:
    """A ReadWriteMany claim whose data lie on the machine under all nodes, which a cut leaves."""

    root: Path
    claim: str

    @property
    def checkpoints(self) -> Path:
        return self.root / "ckpt"

    def lines(self, attempt: int, rank: int) -> list[Line]:
        path = self.root / "journal" / f"{attempt}-{rank}.txt"
        if not path.exists():
            return []
        words = [line.split() for line in path.read_text().splitlines()]
        return [Line(float(at), word, int(step)) for at, word, step in words]


@pytest.fixture
def volume(space: Kube) -> Iterator[Volume]:
    name = f"shared-{uuid.uuid4().hex[:8]}"
    root = Path("/var/tmp") / f"rtj-e2e-{name}"
    root.mkdir()
    root.chmod(0o777)  # whoever the pods run as
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    space.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                **common,
                "capacity": size,
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(root), "type": "Directory"},
                "claimRef": {"namespace": space.namespace, "name": "runs"},
            },
        }
    )
    space.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "runs"},
            "spec": {**common, "volumeName": name, "resources": {"requests": size}},
        }
    )
    try:
        yield Volume(root, "runs")
    finally:
        space.run("delete", "pv", name, "--wait=false")
        shutil.rmtree(root, ignore_errors=True)


def applied(space: Kube, volume: Volume) -> Job:
    command = ["python3", "-S", f"{manifests.CODE}/kit/trainers/witness.py"]
    command += ["--out", "/shared/ckpt", "--journal", "/shared/journal"]
    command += ["--end-when", "/shared/end", "--save-every", str(SAVE_EVERY)]
    manifest = manifests.job(
        "gpt", store={}, command=command, resume_args=(), pod=manifests.apart("gpt")
    )
    manifest["spec"]["checkpoint"] = {"path": "/shared/ckpt"}
    trainer = manifests.trainer_of(manifest)
    trainer["volumeMounts"].append({"name": "shared", "mountPath": "/shared"})
    claim = {"persistentVolumeClaim": {"claimName": volume.claim}}
    manifest["spec"]["template"]["spec"]["volumes"].append({"name": "shared", **claim})
    space.apply(manifest)
    return Job(kube=space, name="gpt")


def began(volume: Volume, job: Job, attempt: int, *, after: int) -> None:
    """Both ranks' trainers of that attempt started from the save that status names, and nothing
    of the attempt before was written any more."""
    status = job.status()
    resume = status["resume"]
    for rank in (0, 1):
        first = wait_for(
            lambda rank=rank: volume.lines(attempt, rank),
            within=60,
            what=f"rank {rank} of attempt {attempt} in its journal",
        )[0]
        assert first.word == "START"
        if resume["attempt"] == attempt:
            assert first.step == (resume.get("step") or 0), (rank, resume)
    go = min(volume.lines(attempt, rank)[0].at for rank in (0, 1))
    for rank in (0, 1):
        late = [line for line in volume.lines(after, rank) if line.at >= go]
        assert not late, f"rank {rank} of attempt {after} wrote after attempt {attempt} began"


def next_durable(job: Job) -> None:
    step = job.status()["checkpoint"].get("lastDurableStep") or 0
    job.wait_durable(step + SAVE_EVERY)


@pytest.mark.timeout(900)
def test_a_cut_off_node_that_goes_on_writing_mixes_with_nothing(
    product: Stack, space: Kube, volume: Volume
) -> None:
    job = applied(space, volume)
    job.wait_phase("Running", within=180)
    next_durable(job)
    accepted = job.condition("Accepted")
    assert accepted["status"] == "True"
    assert "not the loss of that volume" in accepted["message"]

    # A process crashes: same pods. A pod is deleted: its trainer ends in its grace, no long wait.
    job.kill_trainer(1)
    job.wait_training(2)
    began(volume, job, 2, after=1)
    next_durable(job)
    space.run("delete", "pod", job.pod_name(0), "--wait=false")
    job.wait_training(3)
    began(volume, job, 3, after=2)
    next_durable(job)

    # A node is cut off from everything but its disk: its trainer goes on, and so may its sidecar.
    rank = job.rank_off(product.operator_node())
    node = job.node(rank)
    product.cluster.node_cut(node)
    cut_at = time.time()
    try:
        status = job.wait_status("a new attempt", lambda s: s["attempt"] == 4, within=180)
        assert status["olderWriters"], "the old pod is remembered"
        wait_for(
            lambda: job.condition("Running")["reason"] == "AwaitingOlderWriter",
            within=120,
            what="the condition that names the wait",
        )
        job.wait_training(4, within=240)
        began(volume, job, 4, after=3)
        wrote = [line for line in volume.lines(3, rank) if line.word == "SAVED"]
        assert wrote[-1].at > cut_at, "the zombie wrote nothing: this proves nothing"
        zombie = volume.lines(3, rank)
        next_durable(job)
        wait_for(
            lambda: time.time() > cut_at + WRITES_ON_SECONDS,
            within=WRITES_ON_SECONDS + 10,
            what="a minute since the cut",
        )
    finally:
        product.cluster.node_heal(node)
    next_durable(job)
    assert volume.lines(3, rank) == zombie, "the zombie wrote after the new attempt began"

    # The end: the last save of both ranks is durable, and nothing was lost or done twice.
    (volume.root / "end").touch()
    status = job.wait_phase("Succeeded", within=180)
    ends = [volume.lines(4, rank)[-1] for rank in (0, 1)]
    for end in ends:
        state = 1
        for step in range(1, end.step + 1):
            state = next_state(state, step)
        assert end.word == "DONE-" + hashlib.sha256(str(state).encode()).hexdigest()
    assert status["checkpoint"]["lastDurableStep"] == min(end.step for end in ends)
