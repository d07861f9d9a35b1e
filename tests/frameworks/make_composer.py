"""MosaicML Composer: files with their `latest` link, resumed by `autoresume`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import script

CASES = {"autoresume": {"layout": "composer"}, "rotated": {"layout": "composer"}}


def _trainer(directory: Path, *, saves: int | None, keep: int) -> Any:
    import torch
    from composer import ComposerModel, Trainer

    class Model(ComposerModel):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.net = torch.nn.Linear(1024, 2048)

        def forward(self, batch: Any) -> Any:
            return self.net(batch)

        def loss(self, outputs: Any, batch: Any) -> Any:
            return outputs.square().mean()

    model = Model()
    return Trainer(
        model=model,
        optimizers=torch.optim.AdamW(model.parameters(), lr=1e-3),
        train_dataloader=torch.utils.data.DataLoader(torch.ones(64, 1024), batch_size=8),
        max_duration=f"{2 * saves if saves else 100000}ba",
        run_name="run",
        save_folder=str(directory),
        save_interval="2ba",
        save_num_checkpoints_to_keep=keep,
        autoresume=True,
        progress_bar=False,
        device="cpu",
    )


def _tensors(state: Any) -> dict[str, Any]:
    optimizer = state.optimizers[0].state_dict()["state"]
    return script.flat({"model": state.model.state_dict(), "optimizer": optimizer})


def _case(keep: int) -> script.Case:
    def train(directory: Path, saves: int | None) -> None:
        from composer.callbacks import CheckpointSaver

        save = CheckpointSaver._save_checkpoint

        def told(self: Any, state: Any, logger: Any) -> None:
            step = int(state.timestamp.batch)
            script.saving(step, _tensors(state))
            save(self, state, logger)
            script.saved(step)

        CheckpointSaver._save_checkpoint = told
        _trainer(directory, saves=saves, keep=keep).fit()

    def resume(directory: Path) -> None:
        """`autoresume` loads as the trainer is made."""
        state = _trainer(directory, saves=None, keep=keep).state
        script.resumed(int(state.timestamp.batch) or None, _tensors(state))
        os._exit(0)

    return script.Case(train, resume)


if __name__ == "__main__":
    script.main({"autoresume": _case(-1), "rotated": _case(2)})
