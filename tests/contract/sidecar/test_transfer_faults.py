"""What a bad way to a real S3 server does to a run's saves: nothing lost, nothing wrong taken.

Each fault meets the second save of a run; the driver's own patience, and a caller that asks again
as the agent does, are all that helps it. What was said to be durable is then proved past the proxy,
byte by byte, and what was not is still there to be sent.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.kube import wait_for
from kit.run_writer import run_of
from kit.s3 import S3Server, s3_server
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.fence import Claimed, Done, FenceLost
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.runs.records import Parent, SaveFacts, ShipRecord
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.s3 import S3Store

MIB = 1 << 20
PART = 5 * MIB
LARGE, SMALL, DATA = r"partNumber=\d", r"optimizer", r"/run/checkpoints/"
MANIFEST = r"^PUT .*/manifests/"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(upstream=s3.endpoint) as made:
        yield made


@pytest.fixture(autouse=True)
def healed(proxy: FaultProxy) -> Iterator[None]:
    proxy.seen.clear()
    yield
    proxy.heal(drop=True)


@dataclass
class Sidecar:
    """Rank 0's run behind the proxy, or, for what is to be proved, past it."""

    run: Run
    store: S3Store
    disk: Path

    def claim(self, attempt: int, *, parent: Parent | None = None) -> int:
        claimed = self.run.claim(attempt=attempt, world_size=1)
        assert isinstance(claimed, Claimed)
        if parent is not None:
            assert isinstance(self.run.set_parent(fence=claimed.fence, parent=parent), Done)
        return claimed.fence

    def bodies(self, n: int) -> dict[str, bytes]:
        """Of save 2 one in parts, which is the one that goes through the faults."""
        block = hashlib.sha256(f"step {n}".encode()).digest()
        large = (PART + MIB) // 32 if n == 2 else 1000
        return {"model.pt": block * large, "optimizer.pt": block * 2000}

    def ship(self, fence: int, n: int) -> ShipRecord:
        facts = SaveFacts(root_key=f"s{n}", layout="generic", step=n, status="Verified")
        named = self.run.publishing.name_ship(
            fence=fence, n=n, save=facts, seen={0: ["."]}, world_size=1, parent=None
        )
        assert isinstance(named, Named)
        return named.ship

    def send(self, ship: ShipRecord) -> None:
        files = []
        for name, body in self.bodies(ship.n).items():
            path = self.disk / str(ship.n) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            files.append(LocalFile(f"s{ship.n}/{name}", path, len(body), 0o644))
        facts = SaveFacts(root_key=f"s{ship.n}", layout="generic", step=ship.n, status="Verified")
        self.run.moving.upload_part(ship, files=files, save=facts)

    def save(self, fence: int, n: int) -> str:
        """Name, send, commit, each again while the store has a problem, as the agent does."""
        ship = again(lambda: self.ship(fence, n))
        again(lambda: self.send(ship))
        done = again(lambda: self.run.publishing.try_commit(ship, fence=fence))
        assert isinstance(done, Committed)
        return ship.name

    def holds(self, name: str, n: int, to: Path) -> None:
        """The store has exactly what was saved."""
        assert isinstance(self.run.moving.fetch(name, to), Fetched)
        for path, body in self.bodies(n).items():
            assert (to / f"s{n}" / path).read_bytes() == body


def again(call):  # type: ignore[no-untyped-def]
    for _ in range(8):
        try:
            return call()
        except StoreProblem as problem:
            if not problem.transient:
                raise
    return call()


@pytest.fixture
def sidecars(
    s3: S3Server, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator:  # type: ignore[type-arg]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    opened: list[S3Store] = []

    def make(*, past: bool = False) -> Sidecar:
        store = S3Store(
            bucket=s3.bucket,
            prefix=tmp_path.name,
            endpoint=s3.endpoint if past else proxy.endpoint,
            part_size=PART,
            patience_s=1.5,
            transfer_patience_s=1.5,
        )
        opened.append(store)
        run = run_of(store, run_id="run")
        return Sidecar(run, store, tmp_path / "disk")

    yield make
    for store in opened:
        store.close()


FAULTS = {
    "slow-down": Fault(Mode.BUSY, times=12),
    "internal-error": Fault(Mode.BUSY, times=12, status=500, code="InternalError"),
    "conflict": Fault(
        Mode.BUSY, only="^PUT", times=6, status=409, code="ConditionalRequestConflict"
    ),
    "false-412-on-the-part": Fault(
        Mode.BUSY, only="^PUT .*/parts/", times=2, status=412, code="PreconditionFailed"
    ),
    "false-412-on-the-manifest": Fault(
        Mode.BUSY, only=MANIFEST, times=2, status=412, code="PreconditionFailed"
    ),
    "cut-large": Fault(Mode.CUT, only=LARGE, times=3),
    "drip": Fault(Mode.DRIP, only=f"^PUT .*{SMALL}", bytes_per_second=64 * 1024),
    "wrong-bytes-up-large": Fault(Mode.CORRUPT, only=LARGE, times=2),
    "wrong-bytes-up-small": Fault(Mode.CORRUPT, only=f"^PUT .*{SMALL}", times=2),
    "wrong-bytes-up-manifest": Fault(Mode.CORRUPT, only=MANIFEST, times=1),
    "lost-reply-part": Fault(Mode.LOSE_REPLY, only=LARGE, times=2),
    "lost-reply-completion": Fault(Mode.LOSE_REPLY, only="^POST .*uploadId=", times=1),
    "lost-reply-creation": Fault(Mode.LOSE_REPLY, only="^POST .*uploads", times=1),
    "lost-reply-part-record": Fault(Mode.LOSE_REPLY, only="^PUT .*/parts/", times=1),
    "lost-reply-ship": Fault(Mode.LOSE_REPLY, only="^PUT .*/ships/", times=1),
    "lost-reply-manifest": Fault(Mode.LOSE_REPLY, only=MANIFEST, times=1),
    "lists-fail": Fault(Mode.BUSY, only=r"^GET .*list-type", times=3),
    "upload-list-forbidden": Fault(
        Mode.BUSY, only=r"^GET .*\?uploads", status=403, code="AccessDenied"
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_save_becomes_durable_through_it(
    sidecars, proxy: FaultProxy, tmp_path: Path, fault: Fault
) -> None:
    one = sidecars()
    fence = one.claim(1, parent=Parent(scratch=True))
    first = one.save(fence, 1)
    proxy.switch(fault)
    second = one.save(fence, 2)
    assert proxy.hits(fault.mode), "the fault was met"
    proxy.heal()
    other = sidecars(past=True)
    assert [c.name for c in other.run.candidates(other.run.history())] == [second, first]
    other.holds(first, 1, tmp_path / "first")
    other.holds(second, 2, tmp_path / "second")
    assert other.run.judging.examine(second, deep=True) == []
    uploads = other.store._clients.small.list_multipart_uploads(
        Bucket=other.store._bucket, Prefix=tmp_path.name
    )
    # A creation whose reply was lost, and leftovers that may not be listed, wait for the sweep.
    assert len(uploads.get("Uploads", [])) <= (fault is FAULTS["lost-reply-creation"])


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Mode.BUSY, only=MANIFEST),
        Fault(Mode.BUSY, only=MANIFEST, status=412, code="PreconditionFailed"),
        Fault(Mode.CUT, only=f"^PUT .*{DATA}"),
        Fault(Mode.CORRUPT, only=f"^PUT .*{DATA}"),
    ],
    ids=["busy", "false-412", "cut", "wrong-bytes"],
)
def test_what_never_got_through_is_never_called_durable(
    sidecars, proxy: FaultProxy, tmp_path: Path, fault: Fault
) -> None:
    one = sidecars()
    fence = one.claim(1, parent=Parent(scratch=True))
    first = one.save(fence, 1)
    proxy.switch(fault)
    ship = one.ship(fence, 2)

    def whole() -> object:
        one.send(ship)
        return one.run.publishing.try_commit(ship, fence=fence)

    with pytest.raises(StoreProblem) as raised:
        whole()
    assert raised.value.transient
    proxy.heal()
    other = sidecars(past=True)
    known = other.run.history()
    assert [m.name for m in known.manifests.values()] == [first]
    assert isinstance(again(whole), Committed)
    other.holds(ship.name, 2, tmp_path / "back")


DOWN = {
    "slow-down": Fault(Mode.BUSY, only="^GET", times=6),
    "cut": Fault(Mode.CUT, only=f"^GET .*{DATA}", times=4),
    "wrong-bytes": Fault(Mode.CORRUPT, only=f"^GET .*{DATA}", times=1),
    "drip": Fault(Mode.DRIP, only=f"^GET .*{SMALL}", bytes_per_second=64 * 1024),
    "never-answered": Fault(Mode.LOSE_REPLY, only=f"^GET .*{DATA}", times=3),
}


@pytest.mark.parametrize("fault", DOWN.values(), ids=DOWN)
def test_a_restore_brings_exactly_what_was_saved(
    sidecars, proxy: FaultProxy, tmp_path: Path, fault: Fault
) -> None:
    one = sidecars()
    name = one.save(one.claim(1, parent=Parent(scratch=True)), 1)
    proxy.switch(fault)
    one.holds(name, 1, tmp_path / "back")
    assert proxy.hits(fault.mode)


def test_bytes_that_are_wrong_at_every_read_restore_nothing_and_convict_no_save(
    sidecars, proxy: FaultProxy, tmp_path: Path
) -> None:
    one = sidecars()
    name = one.save(one.claim(1, parent=Parent(scratch=True)), 1)
    proxy.switch(Fault(Mode.CORRUPT, only=f"^GET .*{DATA}"))
    with pytest.raises(StoreProblem) as raised:
        one.run.moving.fetch(name, tmp_path / "back")
    assert "on the way" in raised.value.message
    assert not any(path.is_file() for path in (tmp_path / "back").rglob("*"))
    proxy.heal()
    one.holds(name, 1, tmp_path / "back")


def test_of_two_writers_of_one_save_both_are_right(
    sidecars, proxy: FaultProxy, tmp_path: Path
) -> None:
    """An old pod and its successor send the same pinned save at once."""
    one, two = sidecars(), sidecars()
    two.disk = one.disk.with_name("disk of the other")
    fence = one.claim(1, parent=Parent(scratch=True))
    ship = one.ship(fence, 1)
    gate = threading.Barrier(2)

    def writes(sidecar: Sidecar) -> object:
        gate.wait()
        again(lambda: sidecar.send(ship))
        return again(lambda: sidecar.run.publishing.try_commit(ship, fence=fence))

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(writes, (one, two)))
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert outcomes[0] == outcomes[1], "one manifest, whoever wrote it"
    sidecars(past=True).holds(ship.name, 1, tmp_path / "back")


def test_a_zombies_late_commit_is_no_candidate(sidecars, proxy: FaultProxy, tmp_path: Path) -> None:
    """Its last write waits in the network while a new attempt chooses without it."""
    zombie = sidecars()
    fence = zombie.claim(1, parent=Parent(scratch=True))
    first = zombie.save(fence, 1)
    ship = zombie.ship(fence, 2)
    zombie.send(ship)
    proxy.switch(Fault(Mode.HOLD, only=MANIFEST))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(zombie.run.publishing.try_commit, ship, fence=fence)
        wait_for(lambda: proxy.held, within=60, what="the zombie's manifest is on its way")
        new = sidecars(past=True)
        parent = Parent(name=first, step=1)
        second_fence = new.claim(2, parent=parent)
        proxy.heal()
        assert isinstance(late.result(timeout=60), Committed)
    after = new.save(second_fence, 3)
    names = [c.name for c in new.run.candidates(new.run.history())]
    assert names == [after, first], "what came after the choice is a branch"
    later = zombie.ship(fence, 3)
    zombie.send(later)
    assert isinstance(zombie.run.publishing.try_commit(later, fence=fence), FenceLost)
    new.holds(first, 1, tmp_path / "back")
