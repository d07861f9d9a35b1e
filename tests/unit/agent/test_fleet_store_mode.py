"""A gang that no operator hears, and rank 0 that has much to fetch before anything is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.fleet import RUN, Fleet
from kit.fleet_pod import Held
from rtj_api.wire import Phase, SidecarPhase, ThroughStore
from rtj_sidecar import preparing
from rtj_sidecar.runs.records import ReadyRecord


async def test_rank_0_says_that_it_moves_while_it_proves_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "LIST_SECONDS", 1.0)
    fleet = Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store", mirror="never")
    async with fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        for rank in range(2):
            await fleet.replace(rank, made_in=2)
        held = Held(fleet.pods[0], "download")
        fleet.attempt = 2
        fleet.direct(Phase.GO, through_store=ThroughStore(ever_durable=True))
        await fleet.until(held.asked.is_set, why="rank 0 fetches")
        record = tmp_path / "store" / RUN / "ready" / "f2" / "0.json"
        await fleet.until(record.exists, why="its record")
        said = ReadyRecord.model_validate_json(record.read_bytes())
        assert (said.attempt, said.state.value) == (2, "stopped")
        held.free.set()
        await fleet.until(
            lambda: all(pod.report.phase is SidecarPhase.TRAINING for pod in fleet.pods),
            why="both train",
        )
