"""A trainer that must be stopped is, also where the wish cannot be written at first."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rtj_api.wire import Stop
from rtj_sidecar.report import Reporter
from rtj_sidecar.station import Station
from rtj_sidecar.trainer.supervisor_link import SupervisorLink


async def test_a_full_disk_only_delays_it(tmp_path: Path) -> None:
    link = SupervisorLink(tmp_path)  # its run directory is not there: nothing can be written
    reporter = Reporter(job_uid="j", pod_uid="p", rank=0)
    station = Station(
        site=None,  # type: ignore[arg-type]
        link=link,
        journal=None,  # type: ignore[arg-type]
        reporter=reporter,
        directory=None,  # type: ignore[arg-type]
        run=None,
        http=None,  # type: ignore[arg-type]
        loop=asyncio.get_running_loop(),
    )
    station.kill_trainer(up_to=3)  # called from a loop that must go on
    assert [p.reason for p in reporter.current.degraded] == ["DiskFull"]
    link.run.mkdir(parents=True)
    place = link.run / "stop.json"
    async with asyncio.timeout(60):
        while not place.exists():
            await asyncio.sleep(0.05)
    assert Stop.model_validate_json(place.read_text()) == Stop(attempt=3, grace_seconds=None)
    assert reporter.current.degraded == []
