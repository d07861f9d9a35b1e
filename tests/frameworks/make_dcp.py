"""torch.distributed.checkpoint, two gloo ranks: synchronous, asynchronous, into one directory, and
as Hugging Face files.

See `script` for how it is called.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import ranks
import script

CASES = {
    "sync": {"layout": "dcp", "disks": 2},
    "async": {"layout": "dcp", "disks": 2},
    "same": {"layout": "dcp", "in_place": True, "disks": 2},
    "hf": {"layout": "dcp-hf", "full_state": False, "disks": 0},
}
WORLD = 2


class Trainer:
    """A model sharded over the ranks, with AdamW's state, and the number of steps."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))

        def shard() -> Any:
            return distribute_tensor(torch.zeros(1024, 2048), mesh, [Shard(0)])

        self.step = 0
        self.tensors = {"model": {"w": shard()}, "optimizer": {"m": shard(), "v": shard()}}

    def train(self) -> None:
        self.step += 1
        local = self.tensors["model"]["w"].to_local()
        local += float(self.step)
        for name, factor in (("m", 0.5), ("v", 0.25)):
            self.tensors["optimizer"][name].to_local().fill_(factor * self.step)

    def state(self) -> dict[str, Any]:
        return {**self.tensors, "step": self.step}

    def digests(self, *, weights: bool) -> dict[str, Any]:
        held = {"model": self.tensors["model"]} if weights else self.tensors
        local = {
            f"{name}/{key}": tensor.to_local()
            for name, group in held.items()
            for key, tensor in group.items()
        }
        return ranks.together(script.flat(local))


def _where(kind: str, directory: Path, step: int) -> str:
    return str(directory / ("state" if kind == "same" else f"step-{step}"))


def _case(kind: str) -> script.Case:
    def train(directory: Path, saves: int | None) -> None:
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp

        rank = ranks.begin(WORLD)
        trainer = Trainer()
        while saves is None or trainer.step < saves:
            trainer.train()
            tensors = trainer.digests(weights=kind == "hf")
            if rank == 0:
                script.saving(trainer.step, tensors)
            place = _where(kind, directory, trainer.step)
            if kind == "async":
                dcp.async_save(trainer.state(), checkpoint_id=place).result()
            elif kind == "hf":
                writer = dcp.HuggingFaceStorageWriter(
                    path=place, save_distributed=True, enable_consolidation=True
                )
                dcp.save({"w": trainer.tensors["model"]["w"]}, storage_writer=writer)
            else:
                dcp.save(trainer.state(), checkpoint_id=place)
            dist.barrier()
            if rank == 0:
                script.saved(trainer.step)

    def resume(directory: Path) -> None:
        import torch.distributed.checkpoint as dcp

        rank = ranks.begin(WORLD)
        trainer = Trainer()
        if kind == "same":
            place = _where(kind, directory, 0)
        else:
            names = [entry.name for entry in os.scandir(directory) if entry.is_dir()]
            step = max(int(m.group(1)) for n in names if (m := re.match(r"step-(\d+)$", n)))
            place = _where(kind, directory, step)
        if kind == "hf":
            state: dict[str, Any] = {"w": trainer.tensors["model"]["w"]}
            dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(path=place))
            trainer.step = step
        else:
            state = trainer.state()
            dcp.load(state, checkpoint_id=place)
            trainer.step = state["step"]
        tensors = trainer.digests(weights=kind == "hf")
        if rank == 0:
            script.resumed(trainer.step, tensors)

    return script.Case(train, resume)


if __name__ == "__main__":
    script.main({name: _case(name) for name in ("sync", "async", "same", "hf")})
