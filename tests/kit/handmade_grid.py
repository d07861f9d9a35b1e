"""Saves of Megatron, NeMo, DCP's HF writer, NVRx and DLRover, made by hand.

Mirrored from the libraries' source. `test_handmade_names.py` compares the file names of DCP's HF
writer with real ones, and of nothing else here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit.handmade import (
    Object,
    dcp_directory,
    json_file,
    safetensors_file,
    safetensors_index,
    torch_file,
)


def megatron_arguments(**values: Any) -> Object:
    """The `args` that Megatron puts into its files: an argparse.Namespace."""
    grid = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1}
    grid |= {"expert_model_parallel_size": 1, "expert_tensor_parallel_size": None}
    grid |= {"use_distributed_optimizer": False, "no_save_optim": None}
    grid |= {"consumed_train_samples": 80, "world_size": 2}
    return Object("argparse", "Namespace", {**grid, **values})


def megatron_dist(directory: Path, *, step: int, ranks: int = 2) -> None:
    """`torch_dist`: common.pt, a DCP directory, metadata.json last."""
    common = {"args": megatron_arguments(), "checkpoint_version": 3.0, "iteration": step}
    common |= {"opt_param_scheduler": {"num_steps": step}}
    torch_file(directory / "common.pt", common)
    keys = {"model.weight": None, "optimizer.state.exp_avg.weight": None, "rng_state": None}
    dcp_directory(directory, keys, ranks=ranks)
    backend = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    backend |= {"common_backend": "torch", "common_backend_version": 1}
    json_file(directory / "metadata.json", backend)


def megatron_legacy(
    directory: Path,
    *,
    step: int,
    tensor: int = 2,
    pipeline: int = 1,
    expert: int = 1,
    distributed: bool = True,
) -> None:
    args = megatron_arguments(
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        expert_model_parallel_size=expert,
        use_distributed_optimizer=distributed,
    )
    state = {"args": args, "iteration": step, "model": {"weight": 0}, "checkpoint_version": 3.0}
    state |= {"optimizer": {"optimizer": {}}, "opt_param_scheduler": {}, "rng_state": [{}]}
    for t in range(tensor):
        for p in range(pipeline):
            for e in range(expert):
                name = f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else "")
                name += f"_{e:03d}" if expert > 1 else ""
                torch_file(directory / name / "model_optim_rng.pt", state)
                if distributed:
                    torch_file(directory / name / "distrib_optim.pt", {"buckets": 0})


def nemo_two(directory: Path, *, ranks: int = 2) -> None:
    """A NeMo 2 directory: `weights/` and `context/`."""
    megatron_dist(directory / "weights", step=7, ranks=ranks)
    json_file(directory / "context" / "io.json", {"objects": {}})
    (directory / "context" / "model.yaml").write_text("_target_: x\n")


def nemo_one(stem: Path, *, tensor: int = 2) -> None:
    """NeMo 1 without distributed checkpoints: a `.ckpt` of each model-parallel rank."""
    state = {"epoch": 0, "global_step": 7, "state_dict": {}, "optimizer_states": [{}]}
    for t in range(tensor):
        place = stem.parent / f"tp_rank_{t:02d}_pp_rank_000" / f"{stem.name}.ckpt"
        torch_file(place, state)


def dcp_hf(directory: Path, *, ranks: int = 2) -> None:
    """HuggingFaceStorageWriter with consolidation."""
    for rank in range(1, ranks + 1):
        name = f"shard-{rank:05d}-model-00001-of-00001.safetensors"
        safetensors_file(directory / "sharded" / name, "weight")
    safetensors_file(directory / "model-00001-of-00001.safetensors", "weight")
    index = directory / "model.safetensors.index.json"
    safetensors_index(index, {"weight": "model-00001-of-00001.safetensors"})


def nvrx(root: Path, *, step: int, ranks: int = 2, session: str = "run") -> None:
    for rank in range(ranks):
        name = f"iter_{step:07d}_{rank}_local.pt"
        torch_file(root / session / str(rank) / name, Object("mcore", "TensorAware", {"a": 1}))


def dlrover(root: Path, *, step: int, ranks: int = 1) -> None:
    """A data-parallel flash checkpoint: `{step}/rank_R.pt` and the tracker."""
    for rank in range(ranks):
        state = {"model": {}, "optimizer": {"state": {}}, "step": step}
        torch_file(root / str(step) / f"rank_{rank}.pt", state)
    (root / "dlrover_latest.txt").write_text(str(step))
