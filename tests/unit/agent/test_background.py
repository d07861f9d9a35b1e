"""What runs behind a directive: an error that nobody foresaw is told, and the work done again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kit.fleet import Fleet
from rtj_api.reasons import Reason
from rtj_sidecar import background


async def test_an_unforeseen_error_is_told_until_the_work_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence is claimed behind prepare: without it no save of this attempt ever got a name."""
    monkeypatch.setattr(background, "MIN_BACK_OFF", 0.2)
    fleet = Fleet(tmp_path, world_size=1, store=f"file://{tmp_path}/store")
    async with fleet:
        (pod,) = fleet.pods
        run = pod.agent.station.run
        assert run is not None
        claim, calls = run.claim, []

        def broken(**options: object) -> object:
            calls.append(options)
            if len(calls) < 3:
                raise KeyError("nobody thought of this")
            return claim(**options)  # type: ignore[arg-type]

        monkeypatch.setattr(run, "claim", broken)
        told: list[tuple[str, str]] = []

        async def watch() -> None:
            while True:
                told.extend((p.reason, p.message) for p in pod.report.degraded)
                await asyncio.sleep(0.01)

        watching = asyncio.create_task(watch())
        await fleet.begin()
        watching.cancel()
        assert {reason for reason, _ in told} == {Reason.INTERNAL_ERROR}
        assert "KeyError: 'nobody thought of this'" in told[0][1]
        assert not pod.report.degraded, "told although the work was done"
        fleet.save(10)
        await fleet.until_durable(10)
