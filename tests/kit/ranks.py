"""Ranks of one run as the facade serves them: each with its disk, on any store, no process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rtj_sidecar.checkpoints.types import Gate, GateResult, PartFiles
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.fence import Claimed, Done
from rtj_sidecar.runs.records import Parent, SaveFacts, ShipRecord
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.base import Store

SCRATCH = Parent(scratch=True)


def all_ranks_have_a_shard(layout: str, parts: Sequence[PartFiles], world: int) -> GateResult:
    if layout != "sharded":
        return GateResult(Gate.SET, None, "no rule")
    absent = [r for r in range(world) if not any(f"shard{r}" in part.files for part in parts)]
    return GateResult(Gate.SET, not absent, f"shards absent: {absent}")


@dataclass
class Rank:
    """One rank's sidecar of one attempt, with its disk."""

    run: Run
    rank: int
    disk: Path

    def save(self, name: str, files: dict[str, bytes]) -> list[LocalFile]:
        made = []
        for path, body in files.items():
            source = self.disk / name / path
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_bytes(body)
            made.append(LocalFile(path=path, source=source, size=len(body), mode=0o640))
        return made


Ranks = Callable[..., Rank]


def facts(step: int | None, **more: object) -> SaveFacts:
    given = {"root_key": f"ckpt_{step}", "layout": "generic", "full_state": True} | more
    given.setdefault("status", "Verified")
    return SaveFacts(step=step, **given)


def claimed(rank: Rank, attempt: int, *, parent: Parent | None = None) -> int:
    outcome = rank.run.claim(attempt=attempt, world_size=2)
    assert isinstance(outcome, Claimed)
    if parent is not None:
        assert isinstance(rank.run.set_parent(fence=outcome.fence, parent=parent), Done)
    return outcome.fence


def named(
    rank: Rank, fence: int, n: int, save: SaveFacts, seen: dict[int, list[str]]
) -> ShipRecord:
    outcome = rank.run.publishing.name_ship(
        fence=fence, n=n, save=save, seen=seen, world_size=2, parent=None
    )
    assert isinstance(outcome, Named)
    return outcome.ship


def shipped(
    rank: Rank, fence: int, n: int, step: int, body: bytes | None = None, **more: object
) -> ShipRecord:
    """A save that only this rank writes, from name to manifest."""
    save = facts(step, **more)
    ship = named(rank, fence, n, save, {rank.rank: [save.root_key]})
    files = rank.save(ship.name, {save.root_key: body or f"weights of step {step}".encode()})
    rank.run.moving.upload_part(ship, files=files, save=save)
    assert isinstance(rank.run.publishing.try_commit(ship, fence=fence), Committed)
    return ship


def data(store: Store, run_key: str) -> bytes:
    found = store.get(f"ns/gpt/{run_key}")
    assert found is not None
    return found.data


def flip(store: Store, key: str) -> None:
    body = bytearray(data(store, key))
    body[len(body) // 2] ^= 1
    store.put(f"ns/gpt/{key}", bytes(body))
