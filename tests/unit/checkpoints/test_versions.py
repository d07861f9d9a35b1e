"""Which libraries wrote a save, as its files state it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.checkpoint_looks import judged
from kit.handmade import age, json_file, safetensors_file, torch_file
from kit.handmade_saves import composer, lightning
from kit.handmade_sharded import deepspeed_tag, hf_trainer
from rtj_sidecar.checkpoints.versions import changed, versions_of


def trainer(root: Path) -> None:
    place = root / "checkpoint-7"
    hf_trainer(place, step=7, kind="deepspeed")
    json_file(place / "config.json", {"model_type": "llama", "transformers_version": "5.24.0"})


def adapters(root: Path) -> None:
    place = root / "checkpoint-7"
    hf_trainer(place, step=7, kind="peft")
    json_file(place / "adapter_config.json", {"r": 8, "peft_version": "0.18.0"})


def with_header(root: Path) -> None:
    path = root / "step_7" / "model.safetensors"
    safetensors_file(path, "w")
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])
    header["__metadata__"] |= {"torch_version": "2.15.0", "format_version": "1.0"}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + path.read_bytes()[8 + length :])


def plain(**state: Any) -> Callable[[Path], None]:
    return lambda root: torch_file(root / "ckpt_7.pt", {"step": 7, "model": {}, **state})


SAVES: dict[str, tuple[Callable[[Path], object], dict[str, str]]] = {
    "lightning": (lambda root: lightning(root, step=7), {"lightning": "2.6.6"}),
    "deepspeed": (
        lambda root: deepspeed_tag(root / "global_step7", step=7, stage=2),
        {"deepspeed": "0.19.8"},
    ),
    "trainer": (trainer, {"deepspeed": "0.19.8", "transformers": "5.24.0"}),
    "peft": (adapters, {"peft": "0.18.0"}),
    "safetensors": (with_header, {"torch": "2.15.0"}),
    "composer": (lambda root: composer(root, batch=7), {"composer": "0.32.1", "torch": "2.7.0"}),
    "script": (plain(torch_version="2.15.0+cu130"), {"torch": "2.15.0+cu130"}),
    "nested": (plain(meta={"jax_version": "0.10.2"}), {"jax": "0.10.2"}),
    "none": (plain(), {}),
    # A format's number, a number that is no text, and a text that is no number name no library.
    "formats": (
        plain(checkpoint_version="3.0", torch_version=2, git_version="main", x={"y_version": "1"}),
        {},
    ),
}


@pytest.mark.parametrize("name", SAVES)
def test_a_save_states_the_libraries_that_its_files_name(name: str, tmp_path: Path) -> None:
    make, versions = SAVES[name]
    make(tmp_path)
    age(tmp_path)
    ((save, verdict),) = judged(tmp_path).values()
    assert versions_of(save.facts) == versions_of(verdict.facts) == versions


def test_only_what_both_name_can_have_changed() -> None:
    before = {"torch": "2.14.0", "lightning": "2.6.5", "jax": "0.10"}
    now = {"torch": "2.15.0", "lightning": "2.6.5", "deepspeed": "0.19.8"}
    assert changed(before, now) == (("torch", "2.14.0", "2.15.0"),)
    assert changed({}, now) == ()


@pytest.mark.parametrize("told", [None, [], "2.15", {"torch": 2}, {"torch": None}])
def test_facts_of_another_shape_name_none(told: object) -> None:
    assert versions_of({"versions": told}) == {}
