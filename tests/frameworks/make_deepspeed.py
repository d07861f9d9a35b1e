"""DeepSpeed on CPU, two gloo ranks: ZeRO-0 to 3, `load_checkpoint` by `latest`; and in the Trainer.

See `script` for how it is called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import make_huggingface
import ranks
import script

CASES = {
    "zero0": {"layout": "deepspeed", "disks": 2},
    "zero1": {"layout": "deepspeed", "disks": 2},
    "zero2": {"layout": "deepspeed", "disks": 2},
    "zero3": {"layout": "deepspeed", "disks": 2},
    "trainer": {"layout": "hf-trainer", "ranks": 2, "disks": 2},
}
WORLD = 2


def _engine(stage: int) -> Any:
    import deepspeed
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 512))
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
        "bf16": {"enabled": stage > 0},
        "zero_optimization": {"stage": stage},
    }
    deepspeed.init_distributed(dist_backend="gloo")
    engine, *_ = deepspeed.initialize(model=model, config=config)
    return engine


def _tensors(engine: Any) -> dict[str, Any]:
    held = {"optimizer": engine.optimizer.state_dict()}
    return ranks.together(script.flat(_floats(held)))


def _floats(value: Any) -> Any:
    """bfloat16 is no type of numpy."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_floats(item) for item in value]
    return value if isinstance(value, int | float) else None


def _case(stage: int) -> script.Case:
    def train(directory: Path, saves: int | None) -> None:
        import torch

        rank = ranks.begin(WORLD)
        engine = _engine(stage)
        made = 0
        while saves is None or made < saves:
            given = torch.ones(4, 1024, dtype=torch.bfloat16 if stage else torch.float32)
            engine.backward(engine(given).float().square().mean())
            engine.step()
            tensors = _tensors(engine)
            if rank == 0:
                script.saving(engine.global_steps, tensors)
            engine.save_checkpoint(str(directory), client_state={"epoch": 0})
            if rank == 0:
                script.saved(engine.global_steps)
            made += 1

    def resume(directory: Path) -> None:
        rank = ranks.begin(WORLD)
        engine = _engine(stage)
        path, _ = engine.load_checkpoint(str(directory))
        tensors = _tensors(engine)
        if rank == 0:
            script.resumed(engine.global_steps if path else None, tensors)

    return script.Case(train, resume)


if __name__ == "__main__":
    os.environ["DS_ACCELERATOR"] = "cpu"
    cases = {f"zero{stage}": _case(stage) for stage in range(4)}
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
    }
    cases["trainer"] = make_huggingface.case(world=WORLD, deepspeed=config, bf16=True)
    script.main(cases)
