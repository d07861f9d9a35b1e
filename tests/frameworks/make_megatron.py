"""megatron-core's `dist_checkpointing` on CPU, one process, with what Megatron-LM writes around it.

See `script` for how it is called. The directory names, `common.pt`'s content and the tracker are
written here as megatron/training/checkpointing.py does; the checkpoint itself is megatron-core's.
CUDA calls are replaced, for there is no GPU.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import ranks
import script

CASES = {"torch_dist": {"layout": "megatron"}}
TRACKER = "latest_checkpointed_iteration.txt"


def _without_cuda() -> None:
    import torch

    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.is_current_stream_capturing = lambda: False


def _sharded(tensors: dict[str, Any], step: int) -> dict[str, Any]:
    from megatron.core.dist_checkpointing import ShardedTensor
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    args = Namespace(
        tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1,
        consumed_train_samples=step * 8,
        world_size=1,
    )
    rng = ShardedObject("rng_state", [{"torch": 0}], (1, 1), (0, 0), replica_id=0)
    return {
        "args": args,
        "checkpoint_version": 3.0,
        "iteration": step,
        "opt_param_scheduler": {"num_steps": step},
        "rng_state": rng,
        "model": {"w": ShardedTensor.from_rank_offsets("model.w", tensors["w"])},
        "optimizer": {"m": ShardedTensor.from_rank_offsets("optimizer.m", tensors["m"])},
    }


def _tensors(step: int) -> dict[str, Any]:
    import torch

    return {"w": torch.full((2048, 2048), float(step)), "m": torch.full((2048, 1024), step / 2)}


def _begin() -> Any:
    import torch.distributed as dist

    ranks.begin(1)
    _without_cuda()
    dist.init_process_group("gloo")
    from megatron.core import dist_checkpointing

    return dist_checkpointing


def train(directory: Path, saves: int | None) -> None:
    checkpointing = _begin()
    step = 0
    while saves is None or step < saves:
        step += 1
        tensors = _tensors(step)
        script.saving(step, script.flat(tensors))
        place = directory / f"iter_{step:07d}"
        place.mkdir(parents=True)
        checkpointing.save(_sharded(tensors, step), str(place))
        (directory / TRACKER).write_text(str(step))
        script.saved(step)


def resume(directory: Path) -> None:
    checkpointing = _begin()
    tracker = directory / TRACKER
    if not tracker.exists():
        script.resumed(None, {})
        return
    # As Megatron does: a tracker without a number ends the program.
    word = tracker.read_text().strip()
    if not word.isdecimal():
        sys.exit(f"Invalid metadata file {tracker}")
    step = int(word)
    wanted = _sharded(_tensors(0), 0)
    held = checkpointing.load(wanted, str(directory / f"iter_{step:07d}"))
    tensors = {"w": held["model"]["w"], "m": held["optimizer"]["m"]}
    script.resumed(held["iteration"], script.flat(tensors))


if __name__ == "__main__":
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    script.main({"torch_dist": script.Case(train, resume)})
