"""A store or a disk that misbehaves: training goes on, it is told, nothing torn is ever committed.

Between the pods and the real S3 server stands `kit.fault_proxy`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import host, manifests
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.kube import Kube, wait_for
from kit.long import long
from kit.rtj import KIND, Job
from kit.s3_objects import list_keys, read_object
from kit.stack import Stack
from kit.trainers.counter import read_checkpoint
from rtj_api import contract

DATA = r"/checkpoints/f\d+-n\d+-s"
MANIFEST = r"/manifests/f\d+-n\d+\.json"


@pytest.fixture
def proxy(product: Stack) -> Iterator[FaultProxy]:
    with FaultProxy(upstream=product.s3.endpoint, address=product.host_address) as made:
        yield made


def start(space: Kube, proxy: FaultProxy, name: str, **more) -> Job:
    store = manifests.store(endpoint=proxy.endpoint, prefix=space.namespace)
    space.apply(manifests.counter(name, store=store, **{"replicas": 1, "gpus": 0} | more))
    return Job(kube=space, name=name)


def committed(product: Stack, space: Kube) -> list[dict]:
    """Every commit record of the namespace's run, oldest first."""
    keys = list_keys(product.s3, prefix=f"{space.namespace}/")
    found = [json.loads(read_object(product.s3, key=k)) for k in keys if re.search(MANIFEST, k)]
    return sorted(found, key=lambda record: (record["fence"], record["n"]))


def prove_whole(product: Stack, space: Kube, tmp_path: Path) -> list[dict]:
    """Each committed file is there with its hash, and loads as the step that its record names."""
    keys = list_keys(product.s3, prefix=f"{space.namespace}/")
    records = committed(product, space)
    assert records
    for record in records:
        for file in record["files"]:
            key = next(k for k in keys if k.endswith(file["key"]))
            body = read_object(product.s3, key=key)
            assert (len(body), hashlib.sha256(body).hexdigest()) == (file["size"], file["sha256"])
            copy = tmp_path / Path(file["path"]).name
            copy.write_bytes(io.BytesIO(body).getbuffer())
            assert read_checkpoint(copy)[0] == record["step"]
    return records


def prove_records_last(proxy: FaultProxy, records: list[dict]) -> None:
    """Each commit record was first sent when every file that it names had been taken."""
    seen = [(s.request, s.status) for s in list(proxy.seen)]
    for record in records:
        name = f"/manifests/f{record['fence']}-n{record['n']}.json"
        sent = [i for i, (request, _) in enumerate(seen) if request.endswith(name)]
        told = [i for i in sent if seen[i][0].startswith("PUT ")]
        assert told, f"no record {name} among {len(seen)} requests"
        for file in record["files"]:
            key = file["key"]
            taken = [i for i, (r, status) in enumerate(seen) if status == 200 and key in r]
            stored = [i for i in taken if seen[i][0].startswith(("PUT ", "POST "))]
            assert stored, f"{key} was never taken"
            assert stored[-1] < told[0], f"{key} after its record"


def marks(product: Stack, space: Kube) -> list[dict]:
    keys = list_keys(product.s3, prefix=f"{space.namespace}/")
    return [json.loads(read_object(product.s3, key=k)) for k in keys if "/marks/" in k]


def step_of(job: Job) -> int:
    return job.report(0)["progress"]["step"]


def degraded_by(status: dict) -> str:
    """Reason and message of condition Degraded, empty where it is not degraded."""
    found = next(c for c in status["conditions"] if c["type"] == "Degraded")
    return f"{found['reason']} {found['message']}" if found["status"] == "True" else ""


def wait_degraded(job: Job, reason: str, *, within: float = 90) -> dict:
    return job.wait_status(
        f"Degraded by {reason}", lambda s: reason in degraded_by(s), within=within
    )


def wait_healed(job: Job, reason: str, *, within: float = 90) -> dict:
    return job.wait_status(
        f"no longer degraded by {reason}", lambda s: reason not in degraded_by(s), within=within
    )


def suspend(job: Job, *, value: bool) -> None:
    patch = json.dumps({"spec": {"suspend": value}})
    job.kube.run("patch", KIND, job.name, "--type=merge", "-p", patch)


@pytest.mark.parametrize("outage", [30, long(120)])
def test_503_for_long_costs_nothing_but_the_lag(
    product: Stack, space: Kube, proxy: FaultProxy, tmp_path: Path, outage: int
) -> None:
    steps = 5 * (outage + 30)
    job = start(space, proxy, "busy", steps=steps)
    job.wait_durable(5, within=120)
    proxy.switch(Fault(Mode.BUSY))
    end, before = time.monotonic() + outage, step_of(job)
    durable = job.status()["checkpoint"]["lastDurableStep"]
    status = wait_degraded(job, "StoreUnreachable", within=outage)
    assert "503" in degraded_by(status) or "SlowDown" in degraded_by(status)
    job.wait_status("the lag shown", lambda s: s["checkpoint"]["pendingSaves"] >= 2, within=outage)
    wait_for(lambda: time.monotonic() >= end, within=outage + 5, what="the outage's end")
    assert step_of(job) > before + 2 * outage
    assert job.status()["checkpoint"]["lastDurableStep"] <= durable + 15  # what was under way
    assert proxy.hits(Mode.BUSY)
    proxy.heal()
    wait_healed(job, "StoreUnreachable")
    status = job.wait_phase("Succeeded", within=120)
    assert status["checkpoint"]["lastDurableStep"] == steps
    assert status["checkpoint"]["pendingSaves"] == 0
    assert (status["restarts"], status["starts"]) == (0, 1)
    records = prove_whole(product, space, tmp_path)
    assert records[-1]["step"] == steps
    prove_records_last(proxy, records)
    assert marks(product, space) == []


@pytest.mark.long  # the same with a real sidecar on this disk: tests/unit/agent/test_agent_alone.py
def test_saves_deleted_while_they_are_uploaded_are_committed_from_pins(
    product: Stack, space: Kube, proxy: FaultProxy, tmp_path: Path
) -> None:
    """Keep-1 rotation, a save every three seconds, and a link on which each one takes five."""
    extra = ("--floats", "65536", "--keep", "1")
    proxy.switch(Fault(Mode.DRIP, only=f"^PUT .*{DATA}", bytes_per_second=105_000))
    job = start(space, proxy, "rotating", steps=150, save_every=15, extra=extra)
    status = job.wait_phase("Succeeded", within=180)
    assert status["checkpoint"]["lastDurableStep"] == 150
    assert status["restarts"] == 0
    records = prove_whole(product, space, tmp_path)
    assert len(records) >= 4
    assert len(proxy.hits(Mode.DRIP)) >= 4
    # Rotation had deleted each of them, but for the last, before its upload was over.
    assert [m for m in marks(product, space) if m["kind"] == "invalid"] == []


def small_disk(mebibytes: int) -> dict:
    """A checkpoint volume of that size, the checkpoints in a directory of it."""
    volume = {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": f"{mebibytes}Mi"}}
    return {"volume": volume, "mount": {"name": "data", "mountPath": "/data"}}


def on_small_disk(space: Kube, proxy: FaultProxy, name: str, *, extra: tuple[str, ...]) -> Job:
    store = manifests.store(endpoint=proxy.endpoint, prefix=space.namespace)
    made = manifests.counter(
        name, store=store, replicas=1, gpus=0, checkpoint={"path": "/data/out"}, extra=extra
    )
    pod, disk = made["spec"]["template"]["spec"], small_disk(24)
    pod["volumes"].append(disk["volume"])
    trainer = manifests.trainer_of(made)
    trainer["volumeMounts"].append(disk["mount"])
    command = trainer["command"]
    command[command.index("/checkpoints")] = "/data/out"
    space.apply(made)
    return Job(kube=space, name=name)


def test_a_full_volume_is_told_and_training_goes_on(
    product: Stack, space: Kube, proxy: FaultProxy, tmp_path: Path
) -> None:
    """One file of 2 MiB written again and again in place: each pin is a copy and needs room."""
    extra = ("--floats", "262144", "--in-place", "--forgive")
    job = on_small_disk(space, proxy, "full", extra=extra)
    job.wait_durable(5, within=120)
    pod = job.pod_name(0)
    fill = "import os; n=os.statvfs('/data'); open('/data/filler','ab').write(bytes(max(0,"
    fill += "n.f_bavail*n.f_frsize-1500000)))"

    def filled() -> dict | None:
        """What pins gave back since, while saves became durable, is taken, too."""
        space.exec(pod, "python3", "-c", fill)
        status = job.status()
        return status if "DiskFull" in degraded_by(status) else None

    status = wait_for(filled, within=90, what="the full disk is told", every=1.0)
    assert "/data/out" in degraded_by(status)
    before = step_of(job)
    job.wait_step(before + 15)
    space.exec(pod, "rm", "/data/filler")
    wait_healed(job, "DiskFull")
    job.wait_durable(before + 20, within=90)
    assert job.status()["restarts"] == 0
    prove_whole(product, space, tmp_path)


@pytest.mark.long  # the same with a real sidecar on a tmpfs: tests/unit/agent/test_agent_trouble.py
def test_a_volume_that_became_read_only_is_told_and_training_goes_on(
    product: Stack, space: Kube, proxy: FaultProxy, tmp_path: Path
) -> None:
    job = on_small_disk(space, proxy, "readonly", extra=("--forgive",))
    job.wait_durable(5, within=120)
    proxy.switch(Fault(Mode.DRIP, only=f"^PUT .*{DATA}", bytes_per_second=400))
    pod = job.pod(0)
    wait_for(lambda: job.report(0)["checkpoint"]["pendingSaves"], within=30, what="a slow upload")
    host.run_in_mounts(pod, contract.CONTAINER_SIDECAR, "mount", "-o", "remount,ro", "/data")
    try:
        proxy.heal()
        wait_degraded(job, "DirectoryReadOnly")
        before = step_of(job)
        job.wait_step(before + 15)
    finally:
        host.run_in_mounts(pod, contract.CONTAINER_SIDECAR, "mount", "-o", "remount,rw", "/data")
    wait_healed(job, "DirectoryReadOnly")
    job.wait_durable(before + 16, within=90)
    assert job.status()["restarts"] == 0
    prove_whole(product, space, tmp_path)


@pytest.mark.long  # the cell commit-store of tests/contract/operator/test_fault_matrix.py
def test_a_lost_reply_to_the_commit_is_one_commit(
    product: Stack, space: Kube, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.switch(Fault(Mode.LOSE_REPLY, only=f"^PUT .*{MANIFEST}", times=3))
    job = start(space, proxy, "lost", steps=60)
    status = job.wait_phase("Succeeded", within=150)
    assert status["checkpoint"]["lastDurableStep"] == 60
    assert status["restarts"] == 0
    lost = proxy.hits(Mode.LOSE_REPLY)
    assert len(lost) == 3
    records = prove_whole(product, space, tmp_path)
    steps = [record["step"] for record in records]
    assert len(set(steps)) == len(steps), "one save, one commit record"
    # What was put although nobody heard of it counts, and is not dropped or named again.
    done = {re.search(MANIFEST, seen.request)[0] for seen in lost if seen.status == 200}
    keys = list_keys(product.s3, prefix=f"{space.namespace}/")
    assert done <= {re.search(MANIFEST, k)[0] for k in keys if re.search(MANIFEST, k)}
    assert marks(product, space) == []


def test_bytes_changed_on_the_way_never_resume_and_condemn_nothing(
    product: Stack, space: Kube, proxy: FaultProxy, tmp_path: Path
) -> None:
    job = start(space, proxy, "changed", steps=100_000, extra=("--floats", "16384"))
    job.wait_durable(10, within=120)
    suspend(job, value=True)
    job.wait_phase("Suspended", within=90)
    wait_for(lambda: not job.pods(), within=60, what="pods and local copies gone")
    newest = committed(product, space)[-1]
    starts = job.status()["starts"]

    proxy.switch(Fault(Mode.CORRUPT, only=f"^GET .*{DATA}"))
    suspend(job, value=False)
    job.wait_status(
        "told that bytes change on the way",
        lambda s: "bytes change on the way" in str(s["conditions"]) + str(s.get("hold")),
        within=120,
    )
    assert job.status()["starts"] == starts
    assert proxy.hits(Mode.CORRUPT)
    assert marks(product, space) == []

    proxy.heal()
    status = job.wait_phase("Running", within=150)
    assert status["resume"]["name"] == newest["name"]
    job.wait_step(newest["step"] + 1)
    assert f"START {newest['step']} " in job.log(0)
    assert marks(product, space) == []
    prove_whole(product, space, tmp_path)
