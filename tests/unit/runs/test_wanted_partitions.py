"""A pod wants only its own ZeRO partitions, where its part of the save says which those are."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from kit.run_writer import run_of
from rtj_sidecar.checkpoints.needs import Gang
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.fence import Claimed, Done
from rtj_sidecar.runs.records import Parent, SaveFacts
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile

FACTS = {
    "deepspeed": {
        "s1": {
            "dp_world_size": 2,
            "mp_world_size": 1,
            "ds_config.zero_optimization.stage": 2,
        }
    }
}


def partition(number: int) -> str:
    return f"s1/zero_pp_rank_{number}_mp_rank_00_optim_states.pt"


def rank_of(store: MemoryStore, rank: int) -> Run:
    made = run_of(store, run_id="run", rank=rank)
    made.suiting.gang = Gang(rank=rank, world_size=2, procs=1)
    return made


@pytest.mark.parametrize(("numbers", "wanted"), [((0, 1), [{0}, {1}]), ((1, 0), [{0, 1}, {0, 1}])])
def test_only_where_the_parts_prove_it(
    tmp_path: Path, numbers: tuple[int, int], wanted: list[set[int]]
) -> None:
    """`numbers`: the partition that each pod wrote."""
    store = MemoryStore()
    runs = [rank_of(store, rank) for rank in range(2)]
    assert isinstance(runs[0].claim(attempt=1, world_size=2), Claimed)
    assert isinstance(runs[0].set_parent(fence=1, parent=Parent(scratch=True)), Done)
    facts = SaveFacts(root_key="s1", layout="deepspeed", step=1, status="Verified", facts=FACTS)
    seen = {rank: [partition(number)] for rank, number in enumerate(numbers)}
    named = runs[0].publishing.name_ship(
        fence=1, n=1, save=facts, seen=seen, world_size=2, parent=None
    )
    assert isinstance(named, Named)
    for run, number in zip(runs, numbers, strict=True):
        path = tmp_path / str(number)
        path.write_bytes(b"partition %d" % number)
        file = LocalFile(partition(number), path, path.stat().st_size, 0o644)
        run.moving.upload_part(named.ship, files=[file], save=facts)
    assert isinstance(runs[0].publishing.try_commit(named.ship, fence=1), Committed)
    for run, numbers_wanted in zip(runs, wanted, strict=True):
        paths = {file.path for file in run.suiting.wanted(named.ship.name)}
        assert paths == {partition(number) for number in numbers_wanted}
