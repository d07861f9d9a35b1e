"""Accelerate's `save_state` and `load_state`: its own naming, named directories, two ranks, FSDP.

See `script` for how it is called. Accelerate wants a GPU for FSDP; here the model is sharded by
torch's own `fully_shard` on CPU, and Accelerate is told that it is FSDP: it saves and loads by its
own code for it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import ranks
import script

CASES = {
    "automatic": {"layout": "accelerate"},
    "named": {"layout": "accelerate"},
    "ddp": {"layout": "accelerate", "ranks": 2, "disks": 2},
    "fsdp": {"layout": "accelerate", "ranks": 2, "disks": 2},
    "fsdp-full": {"layout": "accelerate", "ranks": 2, "disks": 2},
}


class Progress:
    """A registered object that knows the step."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


def _prepared(directory: Path, *, automatic: bool, fsdp: str | None) -> tuple[Any, ...]:
    import torch
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    project = ProjectConfiguration(
        project_dir=str(directory), automatic_checkpoint_naming=automatic, total_limit=2
    )
    accelerator = Accelerator(cpu=True, project_config=project)
    torch.manual_seed(1)
    model = torch.nn.Linear(1024, 2048)
    if fsdp:
        _shard(accelerator, model, fsdp)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    data = torch.utils.data.DataLoader(torch.ones(256, 1024), batch_size=8)
    progress = Progress()
    if fsdp:
        accelerator._models, accelerator._optimizers = [model], [optimizer]
        accelerator._schedulers = [scheduler]
        return accelerator, progress, model, optimizer, scheduler, data
    prepared = accelerator.prepare(model, optimizer, scheduler, data)
    if automatic:
        accelerator.register_for_checkpointing(progress)
    return accelerator, progress, *prepared


def _shard(accelerator: Any, model: Any, kind: str) -> None:
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (accelerator.num_processes,)))
    state = accelerator.state
    state.distributed_type = DistributedType.FSDP
    state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type=kind)


def _tensors(model: Any, optimizer: Any, *, many: bool) -> dict[str, Any]:
    held = _local({"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"]})
    return ranks.together(script.flat(held)) if many else script.flat(held)


def _local(value: Any) -> Any:
    """This rank's shard of each sharded tensor."""
    if isinstance(value, dict):
        return {key: _local(item) for key, item in value.items()}
    return value.to_local() if hasattr(value, "to_local") else value


def _case(*, automatic: bool = False, world: int = 1, fsdp: str | None = None) -> script.Case:
    def train(directory: Path, saves: int | None) -> None:
        rank = ranks.begin(world) if world > 1 else 0
        accelerator, progress, model, optimizer, scheduler, _ = _prepared(
            directory, automatic=automatic, fsdp=fsdp
        )
        import torch

        made = 0
        while saves is None or made < saves:
            model(torch.ones(8, 1024)).square().mean().backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            progress.step += 1
            tensors = _tensors(model, optimizer, many=world > 1)
            if rank == 0:
                script.saving(progress.step, tensors)
            where = None if automatic else str(directory / f"step_{progress.step}")
            accelerator.save_state(where)
            accelerator.wait_for_everyone()
            if rank == 0:
                script.saved(progress.step)
            made += 1

    def resume(directory: Path) -> None:
        rank = ranks.begin(world) if world > 1 else 0
        accelerator, progress, model, optimizer, _, _ = _prepared(
            directory, automatic=automatic, fsdp=fsdp
        )
        if automatic:
            accelerator.load_state()
            step = progress.step
        else:
            # As the examples of the library do with `--resume_from_checkpoint latest`.
            names = [entry.name for entry in os.scandir(directory) if entry.is_dir()]
            steps = [int(m.group(1)) for name in names if (m := re.match(r"step_(\d+)$", name))]
            step = max(steps)
            accelerator.load_state(str(directory / f"step_{step}"))
        tensors = _tensors(model, optimizer, many=world > 1)
        if rank == 0:
            script.resumed(step, tensors)

    return script.Case(train, resume)


if __name__ == "__main__":
    script.main(
        {
            "automatic": _case(automatic=True),
            "named": _case(),
            "ddp": _case(world=2),
            "fsdp": _case(world=2, fsdp="SHARDED_STATE_DICT"),
            "fsdp-full": _case(world=2, fsdp="FULL_STATE_DICT"),
        }
    )
