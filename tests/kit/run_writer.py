"""One rank's sidecar that writes saves of a few small files into a run, without a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtj_sidecar.checkpoints.types import Gate, GateResult
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.fence import Claimed, Done
from rtj_sidecar.runs.records import Parent, SaveFacts, ShipRecord
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile

DATA = "ns/gpt/checkpoints/"


def run_of(store: Any, *, run_id: str = "ns/gpt", rank: int = 0, **more: Any) -> Run:
    """The run as one rank's sidecar has it, of a layout whose sets have no rule of their own."""
    options: dict[str, Any] = {
        "cluster_uid": "cluster",
        "job_uid": "job",
        "union_gate": lambda *_: GateResult(Gate.SET, None, "no rule"),
        **more,
    }
    return Run(store=store, run_id=run_id, rank=rank, **options)


def begun(run: Run, *, attempt: int = 1) -> int:
    """The fence of an attempt that begins from nothing."""
    claimed = run.claim(attempt=attempt, world_size=1)
    assert isinstance(claimed, Claimed)
    assert isinstance(run.set_parent(fence=claimed.fence, parent=Parent(scratch=True)), Done)
    return claimed.fence


def one_save(run: Run, n: int, disk: Path, *, files: int) -> str:
    """The n-th save of fence 1, of so many small files; its name."""
    facts = SaveFacts(root_key=f"s{n}", layout="generic", step=n, status="Verified")
    named = run.publishing.name_ship(
        fence=1, n=n, save=facts, seen={0: ["."]}, world_size=1, parent=None
    )
    assert isinstance(named, Named)
    local = []
    for number in range(files):
        path = disk / f"{n}-{number}"
        path.write_bytes(f"{n} {number}".encode())
        local.append(LocalFile(f"s{n}/{number}", path, path.stat().st_size, 0o644))
    run.moving.upload_part(named.ship, files=local, save=facts)
    assert isinstance(run.publishing.try_commit(named.ship, fence=1), Committed)
    return named.ship.name


@dataclass
class Writer:
    """Rank 0's sidecar of a run whose clock is set by hand."""

    store: Any
    disk: Path
    clock: list[float] = field(default_factory=lambda: [1000.0])
    moved: dict[str, int] = field(default_factory=lambda: {"sent": 0, "kept": 0})

    def __post_init__(self) -> None:
        self.run = run_of(self.store, now=lambda: self.clock[0])

    def claim(self, attempt: int = 1) -> int:
        return begun(self.run, attempt=attempt)

    def name(self, fence: int, n: int) -> ShipRecord:
        facts = SaveFacts(root_key=f"ckpt_{n}", layout="generic", step=n, status="Verified")
        named = self.run.publishing.name_ship(
            fence=fence, n=n, save=facts, seen={0: ["."]}, world_size=1, parent=None
        )
        assert isinstance(named, Named)
        return named.ship

    def files(self, n: int, files: Mapping[str, bytes]) -> list[LocalFile]:
        made = []
        for path, body in files.items():
            source = self.disk / str(n) / path
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_bytes(body)
            alias = path.startswith("last")
            made.append(LocalFile(path, source, len(body), 0o644, alias=alias))
        return made

    def upload(self, ship: ShipRecord, files: Mapping[str, bytes], *, after: str | None) -> None:
        facts = SaveFacts(root_key=ship.root_key, layout="generic", step=ship.n, status="Verified")
        local = self.files(ship.n, files)
        self.run.moving.upload_part(
            ship,
            files=local,
            save=facts,
            after=after,
            progress=lambda more: self._count("sent", more),
            kept=lambda more: self._count("kept", more),
        )

    def _count(self, what: str, more: int) -> None:
        self.moved[what] += more

    def rot(self, name: str, path: str) -> None:
        """Other bytes below the same ETag."""
        key = f"{DATA}{name}/{path}"
        body, etag = self.store.objects[key]
        self.store.objects[key] = (body[:-1] + bytes([body[-1] ^ 1]), etag)

    def save(
        self, fence: int, n: int, files: Mapping[str, bytes], *, after: str | None = None
    ) -> str:
        ship = self.name(fence, n)
        self.upload(ship, files, after=after)
        assert isinstance(self.run.publishing.try_commit(ship, fence=fence), Committed)
        return ship.name

    def stored(self) -> list[str]:
        return [found.key.removeprefix(DATA) for found in self.store.list(DATA)]
