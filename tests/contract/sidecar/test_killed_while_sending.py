"""A sidecar that is killed while a save is on its way to a real S3 server, and comes back.

All of it is real: the agent as a process of its own, SIGKILLed; the trainer that goes on meanwhile;
the server and its multipart uploads. `tests/unit/stores/test_s3_resume.py` shows the same of one
transfer; here the agent that returns has to find the save, its name and the upload by itself.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.kube import wait_for
from kit.orders import first_start
from kit.podlike import PodLike, make_pod
from kit.s3 import S3Server, s3_server
from kit.s3_objects import list_keys, read_object
from rtj_sidecar.stores.s3_body import PART

SIZE = 3 * PART + (9 << 20)  # in its data alone; the container adds some hundred bytes
PARTS = frozenset({1, 2, 3, 4})
DATA = r"/checkpoints/f1-n1-s10/"
# One save that has the container of `torch.save`, and no other until the test ends.
TRAINER = f"""
import os, pickle, sys, time, zipfile
from pathlib import Path
path = Path(sys.argv[1])
path.mkdir(parents=True, exist_ok=True)
with zipfile.ZipFile(path / ".tmp-ckpt_10.pt", "w", zipfile.ZIP_STORED) as archive:
    archive.writestr("archive/data.pkl", pickle.dumps({{"step": 10, "model": {{}}}}, protocol=2))
    archive.writestr("archive/byteorder", "little")
    archive.writestr("archive/data/0", os.urandom(1 << 20) * ({SIZE} >> 20))
    archive.writestr("archive/version", "3\\n")
os.rename(path / ".tmp-ckpt_10.pt", path / "ckpt_10.pt")
print("saved", flush=True)
time.sleep(600)
"""


@dataclass(frozen=True)
class Kill:
    """Where a life ends: `waiting` requests that match `held` came and never reach the server."""

    held: str
    waiting: int
    stored: frozenset[int]  # parts by then


KILLS = (
    Kill(r"partNumber=[34]\b", 2, frozenset({1, 2})),
    Kill(rf"^POST .*{DATA}.*uploadId=", 1, PARTS),  # all parts, no object
    Kill(r"^PUT .*/parts/f1/1/0", 1, PARTS),  # the object, and no record of it
)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(upstream=s3.endpoint) as made:
        yield made


@pytest.fixture
def pod(s3: S3Server, proxy: FaultProxy, tmp_path: Path) -> Iterator[PodLike]:
    made = make_pod(
        tmp_path,
        store=s3.url(tmp_path.name),
        store_endpoint=proxy.endpoint,
        environment=s3.environment(),
        command=lambda path: [sys.executable, "-c", TRAINER, str(path)],
    )
    yield made
    made.end()


def taken(proxy: FaultProxy) -> list[int]:
    """The numbers of the parts that the server took, in order, each as often as it came."""
    found = [re.search(r"^PUT .*partNumber=(\d+)", s.request) for s in list(proxy.seen) if s.status]
    return [int(each[1]) for each in found if each]


def on_the_wire(proxy: FaultProxy) -> int:
    """Bytes of bodies that went to the server below the save's name."""
    return sum(s.sent for s in list(proxy.seen) if re.search(DATA, s.request))


def test_a_sidecar_killed_again_and_again_sends_only_what_lacked(
    s3: S3Server, proxy: FaultProxy, pod: PodLike
) -> None:
    proxy.switch(Fault(Mode.HOLD, only=KILLS[0].held))
    pod.start()
    first_start(pod)
    for life, kill in enumerate(KILLS):
        if life:
            proxy.switch(Fault(Mode.HOLD, only=kill.held))
            pod.start_agent()
        wait_for(
            lambda kill=kill: set(taken(proxy)) == kill.stored and len(proxy.held) == kill.waiting,
            what=f"parts {kill.stored} are stored and {kill.held} is on its way",
            within=120,
        )
        assert pod.report().checkpoint.last_durable_step is None
        pod.kill_agent()
        proxy.heal(drop=True)
        assert sorted(taken(proxy)) == sorted(kill.stored), "nothing stored is sent again"
    pod.start_agent()
    pod.until(lambda r: r.checkpoint.last_durable_step == 10, seconds=120)
    assert sorted(taken(proxy)) == sorted(PARTS), "each part once in all lives together"
    file = pod.path / "ckpt_10.pt"
    size = file.stat().st_size
    assert size <= on_the_wire(proxy) < 1.01 * size
    assert not s3.client().list_multipart_uploads(Bucket=s3.bucket).get("Uploads")
    (key,) = [key for key in list_keys(s3) if re.search(DATA, key)]
    assert sha256(read_object(s3, key=key)) == sha256(file.read_bytes())
    assert pod.output().count("saved") == 1, "the trainer was left alone"


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
