"""A gang that goes on with another number of ranks: who writes is learned anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.fleet import Fleet


@pytest.mark.parametrize("now", [2, 4])
async def test_the_first_save_after_a_change_of_size_is_that_of_all_ranks(
    now: int, tmp_path: Path
) -> None:
    """A rank that is gone is not waited for; a new one is, though it never wrote before."""
    store = f"file://{tmp_path}/store"
    async with Fleet(tmp_path, world_size=3, store=store, mirror="never") as fleet:
        await fleet.begin()
        fleet.save(1)
        await fleet.until_durable(1)
        if now < len(fleet.pods):
            await fleet.pods.pop().stop()
        else:
            fleet.pods.append(await fleet.make(3, made_in=2))
        await fleet.begin()
        fleet.save(2)
        await fleet.until_durable(2)
        newest = fleet.history().manifests
        assert sorted(max(newest.items())[1].ranks) == list(range(now))
