"""Healthy saves that look like another framework's, or like a torn one: never condemned.

What is called Torn is put aside and never shipped, so a false Torn loses a save.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import handmade_saves as by_hand
from kit.checkpoint_verdicts import look
from kit.damage import both, lost
from kit.handmade import age, safetensors_file, torch_file
from rtj_sidecar.checkpoints.layouts.names import rank_in
from rtj_sidecar.checkpoints.types import Reason, Status


def torch(root: Path, *names: str) -> None:
    for name in names:
        torch_file(root / name, {"step": 10, "weight": 0, "optimizer": {"state": {}}})


def text(root: Path, name: str, content: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(content)


def flax(root: Path) -> None:
    by_hand.orbax(root / "checkpoints", step=10)
    (root / "checkpoints" / "10").rename(root / "checkpoints" / "checkpoint_10")


def trainer_with(root: Path, *, model: str, size: int, config: bool = False) -> None:
    text(root, "checkpoint-10/trainer_state.json", json.dumps({"global_step": 10, "epoch": 1.0}))
    torch(root, *(f"checkpoint-10/{n}" for n in ("optimizer.pt", "scheduler.pt", "rng_state.pth")))
    if config:
        text(root, "checkpoint-10/config.json", "{}")
    if size:
        safetensors_file(root / "checkpoint-10" / model, "w", size=size)


HEALTHY: dict[str, Callable[[Path], object]] = {
    "torch in accelerate's place": lambda root: torch(
        root, "checkpoints/checkpoint_10/model.pt", "checkpoints/checkpoint_10/optimizer.pt"
    ),
    "orbax in accelerate's place": flax,
    "sentence-transformers": lambda root: trainer_with(
        root, model="0_StaticEmbedding/model.safetensors", size=2048
    ),
    "a model of no known name": lambda root: trainer_with(root, model="", size=0),
    "torch in the trainer's place": lambda root: torch(
        root, "checkpoint-10/model.pt", "checkpoint-10/optimizer.pt"
    ),
    "one file in the trainer's place": lambda root: torch(root, "checkpoint-10/model_and_optim.pt"),
    "lora": lambda root: torch(root, "lora_rank16_step10.pt"),
    "a low rank by itself": lambda root: torch(root, "svd_rank16_step10.pt"),
    "json lines": lambda root: (
        torch(root, "step_10/model.pt", "step_10/optimizer.pt"),
        text(root, "step_10/log.json", '{"loss": 1}\n{"loss": 2}\n'),
    ),
    "an empty placeholder": lambda root: (
        torch(root, "step_10/model.pt", "step_10/optimizer.pt"),
        text(root, "step_10/metrics.json", ""),
    ),
    "orbax, a host without a fragment": lambda root: (
        by_hand.orbax(root, step=20, processes=3),
        both(lost("20/state/ocdbt.process_1"), lost("20/state/array_metadatas/process_1"))(root),
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_save_is_never_torn(tmp_path: Path, name: str) -> None:
    HEALTHY[name](tmp_path)
    age(tmp_path)
    found = look(tmp_path, world_size=4 if "rank" in name or name == "lora" else None)
    assert found
    for save, verdict in found.values():
        assert verdict.status is not Status.TORN, (save.layout, verdict.message)
        assert verdict.candidate


def test_dcp_in_the_trainers_place_is_not_the_trainers(tmp_path: Path) -> None:
    for name in (".metadata", "__0_0.distcp"):
        text(tmp_path, f"checkpoint-10/{name}", "x")
    text(tmp_path, "checkpoint-10/model_config.json", "{}")
    assert {save.layout for save, _ in look(tmp_path).values()} == {"dcp"}


def test_a_trainers_model_that_its_configuration_promises_is_missed(tmp_path: Path) -> None:
    trainer_with(tmp_path, model="", size=0, config=True)
    verdict = look(tmp_path)["checkpoint-10"][1]
    assert (verdict.status, verdict.reason) == (Status.TORN, Reason.FILES_MISSING)


@pytest.mark.parametrize("place", ["release", "iter_0000010"])
def test_a_directory_of_the_users_is_no_save_of_megatron(tmp_path: Path, place: str) -> None:
    text(tmp_path, f"{place}/metadata.json", '{"version": 1}')
    text(tmp_path, f"{place}/notes.txt", "what is new")
    age(tmp_path)
    assert look(tmp_path) == {}
    text(tmp_path, f"{place}/metadata.json", '{"sharded_backend": "torch_dist"}')
    assert {save.layout for save, _ in look(tmp_path).values()} == {"megatron"}


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("model_rank3.pt", 3),
        ("ckpt_10_rank-1.pt", 1),
        ("lora_rank16_step10.pt", None),
        ("lorarank16.pt", None),
        ("DoRA-rank8.pt", None),
        ("adapter_rank4.safetensors", None),
        ("mp_rank_00_model_states.pt", None),
    ],
)
def test_a_rank_of_the_world_by_name(name: str, rank: int | None) -> None:
    assert rank_in(name) == rank
