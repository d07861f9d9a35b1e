"""Which files of a save each pod gets: all, unless its own facts prove that fewer are opened."""

from __future__ import annotations

import pytest
from rtj_sidecar.checkpoints.needs import (
    Gang,
    needed,
    needs_one_directory,
    refuses_world,
    too_large,
)

STAGE = "ds_config.zero_optimization.stage"
ELASTIC = "ds_config.zero_optimization.elastic_checkpoint"
MODEL = "global_step10/mp_rank_00_model_states.pt"
EXPERT = "global_step10/layer_0_expert_1_mp_rank_00_model_states.pt"


def zero(rank: int, kind: str = "optim", prefix: str = "bf16_") -> str:
    return f"global_step10/{prefix}zero_pp_rank_{rank}_mp_rank_00_{kind}_states.pt"


PATHS = [MODEL, EXPERT, "latest", *(zero(rank) for rank in range(8))]
PURE = {"dp_world_size": 8, "mp_world_size": 1, STAGE: 2}


def told(**changes: object) -> dict[str, object]:
    names = {"stage": STAGE, "elastic": ELASTIC}
    changed = {names.get(name, name): value for name, value in changes.items()}
    tag = {key: value for key, value in {**PURE, **changed}.items() if value is not None}
    return {"deepspeed": {"global_step10": tag}}


def gang(rank: int, *, world_size: int = 4, procs: int = 2) -> Gang:
    return Gang(rank=rank, world_size=world_size, procs=procs)


def test_a_pod_gets_the_partitions_of_its_own_processes_and_what_all_share() -> None:
    for rank in range(4):
        own = {zero(2 * rank), zero(2 * rank + 1)}
        got = needed(PATHS, facts=told(), was=4, gang=gang(rank), wrote=own.copy)
        assert got == {MODEL, EXPERT, "latest", *own}


def test_of_zero_3_also_its_own_model_states() -> None:
    paths = [zero(rank, "model", "") for rank in range(8)]
    own = paths[6:]
    got = needed(paths, facts=told(stage=3), was=4, gang=gang(3), wrote=own.copy)
    assert got == set(own)


@pytest.mark.parametrize(
    "wrote",
    [
        [zero(6), zero(7)],  # c10d's rendezvous counts nodes by their names as text
        [zero(2)],
        [zero(2), zero(3), zero(4)],
        [f"other/{path}" for path in (zero(2), zero(3))],
        [MODEL],
        [],  # copied from another run
    ],
)
def test_a_pod_that_did_not_write_what_its_index_says_gets_all(wrote: list[str]) -> None:
    got = needed(PATHS, facts=told(), was=4, gang=gang(1), wrote=wrote.copy)
    assert got == set(PATHS)


@pytest.mark.parametrize(
    ("facts", "was", "who"),
    [
        (told(), 4, None),  # processes only guessed
        (told(), 8, gang(0)),  # another number of pods saved it
        (told(), 4, gang(0, procs=4)),  # another number of processes
        (told(mp_world_size=2, dp_world_size=4), 4, gang(0)),
        (told(dp_world_size=4), 4, gang(0)),  # pipeline stages
        (told(elastic=True), 4, gang(0)),
        (told(stage=None), 4, gang(0)),  # its configuration could not be read
        (told(num_experts=[8]), 4, gang(0)),
        ({"deepspeed": {"global_step10": {}}}, 4, gang(0)),
        ({"deepspeed": "?"}, 4, gang(0)),
        ({}, 4, gang(0)),
    ],
)
def test_what_is_not_proved_is_needed(facts: dict[str, object], was: int, who: Gang | None) -> None:
    wrote = [zero(0), zero(1)]
    assert needed(PATHS, facts=facts, was=was, gang=who, wrote=wrote.copy) == set(PATHS)


def test_shards_of_other_frameworks_are_needed_whole() -> None:
    """A replicated tensor lies in one rank's file, and which rank loads what is not in the save."""
    paths = ["step_5/.metadata", "step_5/__0_0.distcp", "step_5/__1_0.distcp"]
    facts = {"needs": dict.fromkeys(paths[1:], 10), "keys": ["model"]}
    who = gang(1, world_size=2, procs=1)
    assert needed(paths, facts=facts, was=2, gang=who, wrote=paths[2:].copy) == set(paths)


def test_who_needs_one_directory_is_seen_by_what_it_leaves() -> None:
    stays = "7.orbax-checkpoint-tmp/default.orbax-checkpoint-tmp/ocdbt.process_1/d/ab"
    left = {"6/_CHECKPOINT_METADATA": 900.0, stays: 60.0}
    why = needs_one_directory(left, finished=[("orbax", "7")])
    assert why is not None
    assert "primary_host=None" in why
    assert needs_one_directory(left, finished=[]) is None, "it may finish yet"
    assert needs_one_directory(left, finished=[("orbax", "6"), ("dcp", "7")]) is None
    named = [("orbax", "7")]
    assert needs_one_directory({stays: 59.0}, finished=named) is None, "a slow host"
    growing = {stays: 900.0, "7.orbax-checkpoint-tmp/default/x": 1.0}
    assert needs_one_directory(growing, finished=named) is None, "it still writes"
    renamed = {stays: 900.0, "7/_CHECKPOINT_METADATA": 1.0}
    assert needs_one_directory(renamed, finished=named) is None, "primary_host=None"
    staged = {"out/._dlrover_ckpt_stage/10/rank_1.pt": 0.0}
    why = needs_one_directory(staged, finished=[])
    assert why is not None
    assert "one directory" in why
    rested = dict.fromkeys(PATHS, 900.0)
    assert needs_one_directory(rested, finished=[("deepspeed", "global_step10")]) is None


def test_a_disk_must_hold_a_restore_and_the_next_save() -> None:
    assert too_large(needed_bytes=60, own_bytes=40, capacity=100) is None
    why = too_large(needed_bytes=61, own_bytes=40, capacity=100)
    assert why is not None
    assert "61 bytes" in why


@pytest.mark.parametrize(
    ("facts", "processes", "word"),
    [
        (told(), 8, None),
        (told(), 4, "ds_to_universal"),
        (told(dp_world_size=4, mp_world_size=2), 8, None),
        (told(stage=0), 4, None),  # every rank has all of it
        (told(stage=None), 4, None),
        ({}, 4, None),
    ],
)
def test_another_number_of_processes(
    facts: dict[str, object], processes: int, word: str | None
) -> None:
    why = refuses_world(facts=facts, processes=processes)
    assert (why is None) if word is None else (why is not None and word in why)
