"""A save of another number of ranks: refused where its framework would refuse it, with words."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from kit.memory_store import MemoryStore
from kit.run_writer import run_of
from rtj_api.reasons import Reason
from rtj_api.rules.resume import Chosen, Facts, NoChoice, choose
from rtj_api.wire import Directive, SidecarConfig
from rtj_sidecar.checkpoints.types import Gate, GateResult
from rtj_sidecar.journal import Entry
from rtj_sidecar.opening import take_place
from rtj_sidecar.runs.history import History

from tests.unit.runs.test_lineage import SCRATCH, fence, history

ZERO_2_OF_4 = {
    "deepspeed": {
        "global_step1": {
            "dp_world_size": 4,
            "mp_world_size": 1,
            "ds_config.zero_optimization.stage": 2,
        }
    }
}


def saved_by_four(facts: dict[str, object]) -> History:
    bare = history([fence(1, SCRATCH)], {(1, 1): 1})
    return replace(
        bare,
        manifests={
            save: record.model_copy(update={"facts": facts, "world_size": 4})
            for save, record in bare.manifests.items()
        },
    )


def config(**fields: object) -> SidecarConfig:
    known = {
        "namespace": "ns",
        "job": "gpt",
        "job_uid": "j",
        "rank": 0,
        "made_in": 1,
        "framework": "torchrun",
        "path": "/ckpt",
        "run_id": "ns/gpt",
        "cluster_uid": "c",
        "procs_stated": True,
    }
    return SidecarConfig(**known | fields)


def directive(world_size: int) -> Directive:
    return Directive(
        job_uid="j", pod_uid="p", rank=0, world_size=world_size, attempt=1, seq=1, phase="prepare"
    )


def choice(
    facts: dict[str, object], *, world_size: int, procs: int = 1, **fields: object
) -> Chosen | NoChoice:
    run = run_of(MemoryStore({}), union_gate=lambda *_: GateResult(Gate.SET, True, ""))
    station = SimpleNamespace(run=run, directory=SimpleNamespace())
    station.site = SimpleNamespace(config=config(procs_per_replica=procs, **fields))
    station.link = SimpleNamespace(told_to_go=lambda: 0)
    station.journal = SimpleNamespace(entry=Entry())
    take_place(station, directive(world_size))  # type: ignore[arg-type]
    return choose(
        Facts(
            run="ns/gpt",
            world_size=world_size,
            candidates=run.candidates(saved_by_four(facts)),
            listed=True,
            pinned={},
            urls={},
        )
    )


@pytest.mark.parametrize(("world_size", "procs"), [(2, 1), (8, 1), (4, 2)])
def test_zero_partitions_of_four_are_not_loaded_by_others(world_size: int, procs: int) -> None:
    found = choice(ZERO_2_OF_4, world_size=world_size, procs=procs)
    assert isinstance(found, NoChoice)
    assert found.reason == Reason.NO_VALID_CHECKPOINT, "never step 0 for that"
    assert Reason.WORLD_SIZE_REFUSED in found.message
    assert "saved by 4 processes" in found.message
    assert "ds_to_universal.py" in found.message


@pytest.mark.parametrize("fields", [{"shared_directory": True}, {"rank": 1}])
def test_nor_where_the_directory_is_shared_or_ranks_have_moved(fields: dict[str, object]) -> None:
    found = choice(ZERO_2_OF_4, world_size=2, **fields)
    assert isinstance(found, NoChoice)
    assert Reason.WORLD_SIZE_REFUSED in found.message
    assert isinstance(choice(ZERO_2_OF_4, world_size=4, **fields), Chosen)
    assert isinstance(choice(ZERO_2_OF_4, world_size=2, procs_stated=False), Chosen), "guessed"


@pytest.mark.parametrize(("world_size", "procs"), [(4, 1), (2, 2)])
def test_the_same_number_of_processes_loads_them(world_size: int, procs: int) -> None:
    assert isinstance(choice(ZERO_2_OF_4, world_size=world_size, procs=procs), Chosen)


def test_what_can_be_laid_out_anew_is_loaded_by_any_number() -> None:
    """DCP's, Megatron's and Orbax' loaders read by slices."""
    found = choice({"needs": {"step_1/__0_0.distcp": 10}}, world_size=2)
    assert isinstance(found, Chosen)
