"""Saves of the sharded torch ecosystems, made by hand.

Names and keys are mirrored from the libraries' source. `test_handmade_names.py` compares the file
names of plain Trainer and Accelerate saves with real ones, and of nothing else here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit.handmade import (
    Object,
    dcp_directory,
    json_file,
    safetensors_file,
    torch_file,
)

_OPTIMIZER = {"state": {0: {"step": 1.0}}, "param_groups": [{"lr": 1e-3}]}


def accelerate(directory: Path, *, ranks: int = 1, step: int | None = None) -> None:
    """`Accelerator.save_state`; `step`: of a registered object."""
    safetensors_file(directory / "model.safetensors", "weight", "bias")
    torch_file(directory / "optimizer.bin", _OPTIMIZER)
    torch_file(directory / "scheduler.bin", {"last_epoch": 3, "_step_count": 4})
    for rank in range(ranks):
        states = {"step": 0, "random_state": (3, (1, 2), None), "torch_manual_seed": None}
        torch_file(directory / f"random_states_{rank}.pkl", states)
    if step is not None:
        torch_file(directory / "custom_checkpoint_0.pkl", {"step": step})


def accelerate_fsdp(directory: Path, *, ranks: int = 2) -> None:
    """`SHARDED_STATE_DICT`: model and optimizer are DCP directories."""
    dcp_directory(directory / "pytorch_model_fsdp_0", {"model.weight": None}, ranks=ranks)
    dcp_directory(directory / "optimizer_0", {"optimizer.state": None}, ranks=ranks)
    torch_file(directory / "scheduler.bin", {"last_epoch": 3})
    for rank in range(ranks):
        torch_file(directory / f"random_states_{rank}.pkl", {"step": 0})


def deepspeed_tag(
    directory: Path,
    *,
    step: int,
    stage: int,
    data: int = 2,
    model: int = 1,
    scheduler: bool = True,
    more: dict[str, Any] | None = None,
) -> None:
    """One tag directory of `data` x `model` ranks."""
    state = {
        "module": {"weight": 0} if stage < 3 else {},
        "buffer_names": [],
        "optimizer": None if stage else _OPTIMIZER,
        "param_shapes": [{"weight": [4, 4]}] if stage else None,
        "lr_scheduler": {"last_batch_iteration": step} if scheduler else None,
        "data_sampler": None,
        "skipped_steps": 0,
        "global_steps": step,
        "global_samples": step * 8,
        "dp_world_size": data,
        "mp_world_size": model,
        "ds_config": {"zero_optimization": {"stage": stage}},
        "ds_version": "0.19.8",
        **(more or {}),
    }
    for part in range(model):
        if stage < 3:
            torch_file(directory / f"mp_rank_{part:02d}_model_states.pt", state)
        for rank in range(data) if stage else ():
            name = f"zero_pp_rank_{rank}_mp_rank_{part:02d}"
            if stage == 3:
                torch_file(directory / f"{name}_model_states.pt", state)
            sharded = {"optimizer_state_dict": {"zero_stage": stage}, "ds_version": "0.19.8"}
            torch_file(directory / f"bf16_{name}_optim_states.pt", sharded)


def hf_trainer(
    directory: Path,
    *,
    step: int,
    ranks: int = 1,
    kind: str = "single",
    arguments: dict[str, Any] | None = None,
) -> None:
    """`checkpoint-N`. `kind`: single, peft, adapters, deepspeed, fsdp, fsdp-full or fsdp-ranks."""
    told = Object("transformers.training_args", "TrainingArguments", arguments or {"fp16": False})
    json_file(directory / "config.json", {"model_type": "llama"})
    if kind == "peft":
        safetensors_file(directory / "adapter_model.safetensors", "lora_A")
        json_file(directory / "adapter_config.json", {"r": 8})
    elif kind == "adapters":
        for name in ("one", "two"):
            safetensors_file(directory / name / "adapter_model.safetensors", "lora_A")
            json_file(directory / name / "adapter_config.json", {"r": 8})
    elif kind in ("single", "deepspeed"):
        safetensors_file(directory / "model.safetensors", "weight")
    torch_file(directory / "training_args.bin", told)
    if kind == "deepspeed":
        deepspeed_tag(directory / f"global_step{step}", step=step, stage=2, data=ranks)
        (directory / "latest").write_text(f"global_step{step}")
        (directory / "zero_to_fp32.py").write_text("# recovery\n")
    elif kind == "fsdp":
        dcp_directory(directory / "pytorch_model_fsdp_0", {"model.weight": None}, ranks=ranks)
        dcp_directory(directory / "optimizer_0", {"optimizer.state": None}, ranks=ranks)
    elif kind == "fsdp-full":
        torch_file(directory / "pytorch_model_fsdp.bin", {"weight": 0})
        torch_file(directory / "optimizer.bin", _OPTIMIZER)
    elif kind == "fsdp-ranks":
        for rank in range(ranks):
            torch_file(directory / f"pytorch_model_fsdp_0_rank{rank}.bin", {"weight": 0})
            torch_file(directory / f"optimizer_0_rank{rank}.bin", _OPTIMIZER)
    else:
        torch_file(directory / "optimizer.pt", _OPTIMIZER)
    if kind != "deepspeed":
        torch_file(directory / "scheduler.pt", {"last_epoch": step})
    for rank in range(ranks):
        name = "rng_state.pth" if ranks == 1 else f"rng_state_{rank}.pth"
        torch_file(directory / name, {"python": (3, (1,), None)})
    state = {"global_step": step, "epoch": step / 10, "log_history": [{"loss": 0.5, "step": step}]}
    json_file(directory / "trainer_state.json", state)
