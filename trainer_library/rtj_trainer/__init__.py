"""Exact continuation for a training script: three lines, a directory, and no other dependency.

    run = Run(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
    run.restore()
    for batch in run.batches(epochs=3):
        ...
        run.step(loss=loss)

Works alone, under `rtj run`, and in a pod. PyTorch, NumPy and torchdata are used only if the
script has imported them. Optional for ever: nothing else of the project imports this package.
"""

from rtj_trainer.registered import Kept
from rtj_trainer.restoring import Restored
from rtj_trainer.run import Run
from rtj_trainer.stopping import Stopped
from rtj_trainer.writing import Costs

__all__ = ["Costs", "Kept", "Restored", "Run", "Stopped"]
