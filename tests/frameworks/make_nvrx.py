"""nvidia-resiliency-ext's local checkpoints, two gloo ranks, without replication.

See `script` for how it is called. It resumes by `find_latest`, a collective of all ranks. The
library's own state dict takes tensors on a GPU only; ours is the same without that demand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ranks
import script

CASES = {"local": {"layout": "nvrx-local", "full_state": None, "keeps_one": True, "ranks": 2}}
WORLD = 2


def _manager(directory: Path) -> Any:
    import torch.distributed as dist
    from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import (
        LocalCheckpointManager,
    )

    dist.init_process_group("gloo")
    return LocalCheckpointManager(str(directory), session_id="run")


def _tensors(step: int, rank: int) -> dict[str, Any]:
    import torch

    return {"w": torch.full((1024, 1024), float(step)), "m": torch.full((1024, 2048), step + rank)}


def _held(state: dict[str, Any]) -> Any:
    from nvidia_resiliency_ext.checkpointing.local.basic_state_dict import (
        BasicTensorAwareStateDict,
    )

    held = BasicTensorAwareStateDict({})
    held.state_dict = state
    return held


def train(directory: Path, saves: int | None) -> None:
    import torch.distributed as dist

    rank = ranks.begin(WORLD)
    manager = _manager(directory)
    step = 0
    while saves is None or step < saves:
        step += 1
        tensors = _tensors(step, rank)
        digests = ranks.together(script.flat(tensors))
        if rank == 0:
            script.saving(step, digests)
        manager.save(_held({"model": tensors, "step": step}), step)
        dist.barrier()
        if rank == 0:
            script.saved(step)


def resume(directory: Path) -> None:
    rank = ranks.begin(WORLD)
    manager = _manager(directory)
    step = manager.find_latest()
    if step < 0:
        if rank == 0:
            script.resumed(None, {})
        return
    # `load` is this, and then moves the tensors to a GPU.
    held = manager._load(manager._ckpt_id(step))
    tensors = held.state_dict["model"]
    digests = ranks.together(script.flat(tensors))
    if rank == 0:
        script.resumed(step, digests)


if __name__ == "__main__":
    script.main({"local": script.Case(train, resume)})
