"""torchtune: its own checkpointer as its recipes call it, weights by epoch and one recipe state.

Recipes need a real model's files to begin with; here the checkpointer alone is driven, with the
state that `full_finetune_single_device` gives it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import script

CASES = {"recipe": {"layout": "torchtune", "counts": "epoch", "in_place": True}}

_FILE = "model-00001-of-00001.bin"


def _checkpointer(directory: Path, *, resume: bool) -> Any:
    """torchtune finds the recipe's state by itself, but must be told the weights' directory."""
    from torchtune.training import FullModelTorchTuneCheckpointer

    base = directory.parent / f"{directory.name}-base"
    base.mkdir(parents=True, exist_ok=True)
    (base / _FILE).touch()
    return FullModelTorchTuneCheckpointer(
        checkpoint_dir=str(base),
        checkpoint_files=[str(_newest(directory) / _FILE) if resume else _FILE],
        model_type="LLAMA2",
        output_dir=str(directory),
        should_load_recipe_state=resume,
    )


def _newest(directory: Path) -> Path:
    found = directory.resolve().glob("epoch_*")
    return max(found, key=lambda place: int(place.name.partition("_")[2]))


def _model() -> tuple[Any, Any]:
    import torch

    torch.manual_seed(1)
    model = torch.nn.Linear(1024, 2048)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def _tensors(model: Any, optimizer: Any) -> dict[str, Any]:
    return script.flat({"m": model.state_dict(), "o": optimizer.state_dict()["state"]})


def train(directory: Path, saves: int | None) -> None:
    import torch

    (model, optimizer), epoch = _model(), 0
    keeper = _checkpointer(directory, resume=False)
    while saves is None or epoch < saves:
        model(torch.ones(8, 1024)).square().mean().backward()
        optimizer.step()
        script.saving(epoch, _tensors(model, optimizer))
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "seed": 1,
            "epochs_run": epoch + 1,
            "total_epochs": 1000,
            "max_steps_per_epoch": None,
        }
        keeper.save_checkpoint(state, epoch=epoch, intermediate_checkpoint=True)
        script.saved(epoch)
        epoch += 1


def resume(directory: Path) -> None:
    found = _checkpointer(directory, resume=True).load_checkpoint(weights_only=False)
    model, optimizer = _model()
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    script.resumed(found["epochs_run"] - 1, _tensors(model, optimizer))
    os._exit(0)


if __name__ == "__main__":
    script.main({"recipe": script.Case(train, resume)})
