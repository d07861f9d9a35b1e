"""Told at the first save: a disk of its own in each pod will not do."""

from __future__ import annotations

import shutil
from pathlib import Path

from kit.fleet import Fleet
from kit.fleet_pod import FleetPod
from rtj_api.reasons import Reason
from rtj_sidecar import needing


def told(pod: FleetPod) -> list[str]:
    return [p.message for p in pod.report.degraded if p.reason == Reason.NEEDS_SHARED_VOLUME]


async def test_a_volume_too_small_for_what_a_restore_brings(tmp_path: Path) -> None:
    """Each of three ranks writes a third and has to load all of it."""
    fleet = Fleet(
        tmp_path,
        world_size=3,
        store=f"file://{tmp_path}/store",
        mirror="never",
        pod_volume=True,
        pod_volume_bytes=300_000,
    )
    async with fleet:
        await fleet.begin()
        fleet.save(10, size=10_000)
        await fleet.until_durable(10)
        assert not any(map(told, fleet.pods)), "60,000 bytes and 20,000 for the next"
        fleet.save(20, size=50_000)
        await fleet.until_durable(20)
        await fleet.until(lambda: all(map(told, fleet.pods)), why="300,000 and 100,000 are not")
        (message,) = told(fleet.pods[1])
        assert str(fleet.pods[1].path) in message
        assert "the volume holds 300,000" in message
        assert "docs/many-ranks.md" in message


async def test_a_framework_that_needs_one_directory(tmp_path: Path) -> None:
    """DLRover stages beside the saves and waits for the files of all nodes in one place."""
    fleet = Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store", mirror="never")
    async with fleet:
        await fleet.begin()
        stage = fleet.pods[1].path / "._dlrover_ckpt_stage" / "10"
        stage.mkdir(parents=True)
        (stage / "rank_1.pt").write_bytes(b"x")
        await fleet.until(lambda: told(fleet.pods[1]), why="told")
        assert not told(fleet.pods[0])
        assert "one directory" in told(fleet.pods[1])[0]
        shutil.rmtree(stage.parent)
        await fleet.until(lambda: not told(fleet.pods[1]), why="healed")


async def test_where_all_pods_share_the_directory_nothing_is_wrong(tmp_path: Path) -> None:
    fleet = Fleet(
        tmp_path, world_size=2, store=f"file://{tmp_path}/store", shared=True, pod_volume_bytes=1000
    )
    async with fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        assert not any(map(told, fleet.pods))
    assert "ReadWriteMany" in needing.REMEDY
