"""Every framework, through the whole engine: shipped while it trains, killed, back on empty disks.

Real sidecars (`kit.fleet`), one for each rank that has a disk of its own, beside the real library;
its trainer is killed in a save, all pods are lost with their disks, and what a restore brings must
be enough for the library's own resume. Long, by `make frameworks`; see `test_frameworks`.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from kit import frameworks
from kit.fleet import Fleet
from kit.frameworks import Case
from kit.tools import ToolMissing

WANTED = os.environ.get("RTJ_FRAMEWORKS", "")
SEED = int(os.environ.get("RTJ_FRAMEWORKS_SEED") or random.SystemRandom().randrange(1 << 30))
PAUSE = 3.0
SECONDS = 120.0

pytestmark = [
    pytest.mark.skipif(not WANTED, reason="the matrix of frameworks runs by `make frameworks`"),
    pytest.mark.timeout(1800),
]


def disks(case: Case) -> int:
    """Pods with disks of their own; 0: its ranks share one directory, which this does not play."""
    return int(case.options.get("disks", 1))


@pytest.mark.parametrize(
    "case",
    [case for case in frameworks.cases() if disks(case)],
    ids=lambda case: f"{case.family}-{case.name}",
)
async def test_all_pods_are_lost_in_a_save(
    case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("e")  # short: a Unix socket of the trainer lies in it
    print(f"RTJ_FRAMEWORKS_SEED={SEED}")
    try:
        frameworks.python_of(case.family)
    except ToolMissing as missing:
        if WANTED == "strict":
            pytest.fail(f"{case.family}: {missing}")
        pytest.skip(f"NOT TESTED, {case.family}: {missing}")
    luck = random.Random(f"{SEED} {case.family} {case.name} engine")
    world = disks(case)
    fleet = Fleet(tmp_path, world_size=world, store=f"file://{tmp_path}/store")
    async with fleet:
        await fleet.begin()
        told = await asyncio.to_thread(
            frameworks.train_and_kill, case, place(fleet), luck=luck, pause=PAUSE
        )
        for pod in fleet.pods:
            pod.exit_code = -9
        newest = max(told.saved)
        if case.in_place:
            # Its only copy may be torn: what was pinned of those before counts.
            await fleet.until(fleet.durable_steps, why="durable", seconds=SECONDS)
        else:
            await fleet.until(lambda: number(fleet, case) >= newest, why="durable", seconds=SECONDS)
        for rank in range(world):
            await fleet.replace(rank, made_in=2)
            assert not list(fleet.pods[rank].path.iterdir()), "an empty disk"
        resume = await fleet.begin()
        manifest = next(m for m in fleet.history().manifests.values() if m.name == resume.name)
        assert manifest.layout == case.layout
        step = manifest.epoch if case.options.get("counts") == "epoch" else manifest.step
        # Keras' backup states an epoch alone.
        is_silent = step is None and case.in_place and case.layout != "dcp"
        assert step in told.digests or is_silent
        assert case.in_place or step >= newest
        for pod in fleet.pods:
            mine = sorted(str(f.relative_to(pod.path)) for f in pod.path.rglob("*") if f.is_file())
            mine = [name for name in mine if not name.startswith(".rtj")]
            print(f"rank {pod.config.rank}: step {step}, saved {told.saved}, {len(mine)} files")
            assert mine
        found = await asyncio.to_thread(frameworks.resume, case, place(fleet))
        assert found[0] is not None
        assert step in (None, found[0])
        assert found == (found[0], told.digests[found[0]])


def number(fleet: Fleet, case: Case) -> int:
    """The newest durable save, in what the framework counts by; -1 before the first."""
    by_epoch = case.options.get("counts") == "epoch"
    of = [m.epoch if by_epoch else m.step for m in fleet.history().manifests.values()]
    return max((n for n in of if n is not None), default=-1)


def place(fleet: Fleet) -> Path:
    """The directory of each rank, as the scripts take it."""
    first = fleet.pods[0].path
    if len(fleet.pods) == 1:
        return first
    return Path(str(first).replace("/pod-0-", "/pod-{rank}-"))
