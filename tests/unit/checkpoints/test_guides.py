"""Every layout says what its users must know, and every framework that is supported is answered."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from rtj_api.v1alpha1 import LayoutName
from rtj_sidecar.checkpoints.layouts import AUTO, all_layouts
from rtj_sidecar.checkpoints.layouts.guide import Guide

PRODUCTS = (
    "torch.save zip",
    "torch.save legacy",
    "safetensors",
    "DCP sync",
    "DCP async_save",
    "DCP HuggingFaceStorageWriter",
    "torchtitan",
    "HF Trainer, 1 process",
    "HF Trainer, R ranks DDP",
    "HF Trainer + DeepSpeed",
    "HF Trainer + FSDP",
    "HF Trainer + PEFT",
    "Accelerate save_state",
    "Lightning 2.x",
    "Lightning FSDP/ModelParallel",
    "DeepSpeed ZeRO-0",
    "DeepSpeed ZeRO-1/2",
    "DeepSpeed ZeRO-3",
    "Megatron-LM torch_dist",
    "Megatron legacy torch",
    "NeMo 1/2",
    "Orbax CheckpointManager",
    "TF Checkpoint",
    "Keras 3",
    "Keras BackupAndRestore",
    "fastai",
    "Composer",
    "torchtune",
    "NVRx local",
    "DLRover flash",
)


@pytest.mark.parametrize("layout", all_layouts(), ids=lambda layout: layout.name)
def test_every_layout_has_a_guide_without_a_gap(layout: object) -> None:
    guides: tuple[Guide, ...] = layout.guides  # type: ignore[attr-defined]
    assert guides
    for guide in guides:
        assert guide.products
        assert [field.name for field in fields(guide) if not getattr(guide, field.name)] == []


def test_every_framework_is_answered_once() -> None:
    told = [name for layout in all_layouts() for g in layout.guides for name in g.products]
    assert len(told) == len(set(told))
    assert set(told) >= set(PRODUCTS)


def test_the_page_and_the_api_name_every_layout() -> None:
    page = (Path(__file__).parents[3] / "docs" / "frameworks.md").read_text(encoding="utf-8")
    names = [layout.name for layout in all_layouts()]
    assert [name for name in names if f"`layout: {name}`" not in page] == []
    assert {name.value for name in LayoutName} == {*names, AUTO}
