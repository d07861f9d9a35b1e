"""DCP saved again and again into the same directory, a disk of its own for each rank."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import pytest
from kit.fleet import Fleet
from kit.handmade import dcp_directory

KEYS = {"model.w": None, "optimizer.m": None}


def save(fleet: Fleet, step: int, *, plain_rank: int) -> dict[str, str]:
    """Path -> SHA-256 of what the ranks wrote, in place; only rank 0 has the `.metadata`."""
    whole = fleet.directory / f"whole-{step}"
    dcp_directory(whole, {**KEYS, "step": step}, ranks=len(fleet.pods), plain_rank=plain_rank)
    for rank, pod in enumerate(fleet.pods):
        place = pod.path / "state"
        place.mkdir(exist_ok=True)
        for name in (f"__{rank}_0.distcp", *([".metadata"] if rank == 0 else [])):
            (place / name).write_bytes((whole / name).read_bytes())
    return {
        f"state/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in whole.iterdir()
    }


def is_durable(fleet: Fleet, step: int) -> bool:
    return step in fleet.durable_steps()


@pytest.mark.parametrize("plain_rank", [0, 1])
async def test_each_save_into_the_same_directory_states_its_step(
    tmp_path: Path, plain_rank: int
) -> None:
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            written = save(fleet, step, plain_rank=plain_rank)
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        # Its shards of the other ranks are on this disk now, where the next save leaves them.
        for rank in range(2):
            await fleet.replace(rank, made_in=2)
        assert (await fleet.begin()).step == 20
        for step in (30, 40):
            written = save(fleet, step, plain_rank=plain_rank)
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
            manifest = max(fleet.history().manifests.values(), key=lambda m: (m.fence, m.n))
            assert {f.path: f.sha256 for f in manifest.files} == written
            assert all(file.ranks is None for file in manifest.files)
