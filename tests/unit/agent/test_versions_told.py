"""A trainer whose libraries changed since the save that it began from: told, nothing refused."""

from __future__ import annotations

from pathlib import Path

from kit.fleet import Fleet
from kit.handmade import torch_file
from rtj_api.reasons import Reason


def save(fleet: Fleet, step: int, *, torch: str) -> None:
    state = {"step": step, "model": {}, "optimizer": {"state": {}}, "torch_version": torch}
    torch_file(fleet.pods[0].path / f"ckpt_{step}.pt", state)


def told(fleet: Fleet) -> list[str]:
    problems = fleet.pods[0].report.degraded
    return [found.message for found in problems if found.reason == Reason.FRAMEWORK_CHANGED]


async def test_a_change_of_version_is_told_until_a_start_from_the_new_one(tmp_path: Path) -> None:
    async with Fleet(tmp_path, world_size=1, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        save(fleet, 10, torch="2.14.0")
        await fleet.until_durable(10)
        assert told(fleet) == []
        manifest = next(iter(fleet.history().manifests.values()))
        assert manifest.facts["versions"] == {"torch": "2.14.0"}

        await fleet.begin()
        save(fleet, 20, torch="2.15.0")
        await fleet.until_durable(20)
        (message,) = told(fleet)
        assert manifest.name in message
        assert "torch 2.14.0, now 2.15.0" in message

        assert (await fleet.begin()).step == 20
        save(fleet, 30, torch="2.15.0")
        await fleet.until_durable(30)
        assert told(fleet) == []
