"""Three ranks with disks of their own and a real S3 server: what `tests/unit/agent/test_fleet.py`
shows on a directory, where conditional writes and multipart uploads are another's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.fleet import Fleet
from kit.fleet_pod import PodDied
from kit.s3 import S3Server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


async def test_a_complete_set_outlives_its_holder(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part but no commit: another holder completes it. Bytes but no part: dropped by name."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    fleet = Fleet(
        tmp_path, world_size=3, store=s3.url("fleet"), store_endpoint=s3.endpoint, mirror="never"
    )
    async with fleet:
        await fleet.begin()

        def dies(verb: str, key: str) -> None:
            if verb == "put" and "manifests/" in key:
                raise PodDied(key)

        fleet.pods[0].store.gate = dies
        fleet.save(10)
        await fleet.until(lambda: fleet.pods[0].died, why="rank 0 dies at its commit")
        assert fleet.durable_steps() == []
        for rank in range(3):
            await fleet.replace(rank, made_in=2)
        resume = await fleet.begin(replaced=[0, 1, 2])
        assert resume.step == 10
        assert fleet.durable_steps() == [10]

        def dies_too(verb: str, key: str) -> None:
            if verb == "put" and "parts/f2/1/2" in key:
                raise PodDied(key)

        fleet.pods[2].store.gate = dies_too
        fleet.save(20)
        await fleet.until(lambda: fleet.pods[2].died, why="rank 2 dies before its part")
        await fleet.replace(2, made_in=3)
        assert (await fleet.begin(replaced=[2])).step == 10
        await fleet.until(lambda: fleet.dropped(), why="dropped by name")
        fleet.save(30)
        await fleet.until_durable(30)
        assert fleet.durable_steps() == [10, 30]
