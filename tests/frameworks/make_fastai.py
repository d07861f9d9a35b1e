"""fastai: `SaveModelCallback(every_epoch=True, with_opt=True)`, `load` and `start_epoch`.

The step is the epoch, the only number that fastai keeps, and that in the name alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import script

CASES = {"every-epoch": {"layout": "fastai", "counts": "epoch"}}


def _learner(directory: Path) -> Any:
    import torch
    from fastai.basics import DataLoader, DataLoaders, Learner

    torch.manual_seed(1)
    data = [(torch.ones(1024), torch.ones(2048)) for _ in range(16)]
    loaders = DataLoaders(DataLoader(data, bs=8), DataLoader(data, bs=8))
    model = torch.nn.Linear(1024, 2048)
    return Learner(
        loaders,
        model,
        loss_func=torch.nn.MSELoss(),
        path=directory,
        model_dir="models",
        train_bn=False,
    )


def _tensors(learner: Any) -> dict[str, Any]:
    state = {"model": learner.model.state_dict(), "opt": learner.opt.state_dict()["state"]}
    return script.flat(state)


def train(directory: Path, saves: int | None) -> None:
    from fastai.callback.tracker import SaveModelCallback

    class Saver(SaveModelCallback):
        def _save(self, name: str) -> None:
            script.saving(self.epoch, _tensors(self.learn))
            super()._save(name)
            script.saved(self.epoch)

    learner = _learner(directory)
    with learner.no_logging():
        learner.fit(saves or 1000, cbs=Saver(every_epoch=True, with_opt=True, fname="run"))


def resume(directory: Path) -> None:
    """As a script would: the newest name, then `start_epoch`, which alone loads nothing."""
    from fastai.basics import Callback

    learner = _learner(directory)
    newest = max(int(file.stem[4:]) for file in (directory / "models").glob("run_*.pth"))
    learner.create_opt()
    learner.load(f"run_{newest}", with_opt=True)

    class Told(Callback):
        def before_train(self) -> None:
            script.resumed(self.epoch - 1, _tensors(self.learn))
            os._exit(0)

    with learner.no_logging():
        learner.fit(newest + 3, start_epoch=newest + 1, reset_opt=False, cbs=Told())


if __name__ == "__main__":
    script.main({"every-epoch": script.Case(train, resume)})
