"""PyTorch Lightning: one file for each save, `last.ckpt`, and the directory of a sharded strategy.

See `script` for how it is called. The model is large enough (24 MB with AdamW's state) for a kill
to land within a save.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import script

CASES = {
    "files": {"layout": "lightning"},
    "link": {"layout": "lightning"},
    "copy": {"layout": "lightning"},
    "other-device": {"layout": "lightning"},
}


def _trainer(directory: Path, *, saves: int | None, last: Any) -> tuple[Any, Any, Any]:
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Saver(ModelCheckpoint):
        def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
            script.saving(trainer.global_step, _tensors(trainer))
            super()._save_checkpoint(trainer, filepath)

        def _save_topk_checkpoint(self, trainer: Any, monitor_candidates: Any) -> None:
            super()._save_topk_checkpoint(trainer, monitor_candidates)
            script.saved(trainer.global_step)

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.net = torch.nn.Linear(1024, 2048)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(batch).square().mean()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 5)]

    saver = Saver(
        dirpath=directory,
        save_top_k=2,
        monitor="step",
        mode="max",
        every_n_train_steps=2,
        save_last=last,
    )
    trainer = lightning.Trainer(
        max_steps=2 * saves if saves else -1,
        callbacks=[saver],
        logger=False,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        default_root_dir=directory,
    )
    data = torch.utils.data.DataLoader(torch.ones(64, 1024), batch_size=8)
    return trainer, Model(), data


def _tensors(trainer: Any) -> dict[str, Any]:
    model, optimizer = trainer.lightning_module, trainer.optimizers[0]
    return script.flat({"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"]})


def _case(last: Any, *, device: str | None = None) -> script.Case:
    def train(directory: Path, saves: int | None) -> None:
        if device is not None:
            os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(dir=device)
        trainer, model, data = _trainer(directory, saves=saves, last=last)
        trainer.fit(model, data)

    def resume(directory: Path) -> None:
        import lightning

        class Told(lightning.Callback):
            def on_train_start(self, trainer: Any, _: Any) -> None:
                script.resumed(trainer.global_step or None, _tensors(trainer))
                os._exit(0)

        trainer, model, data = _trainer(directory, saves=None, last=last)
        trainer.callbacks.append(Told())
        path = "last" if last else max(directory.glob("*.ckpt"), key=lambda f: f.stat().st_mtime_ns)
        trainer.fit(model, data, ckpt_path=path)

    return script.Case(train, resume)


if __name__ == "__main__":
    script.main(
        {
            "files": _case(None),
            "link": _case("link"),
            "copy": _case(True),
            "other-device": _case(True, device="/dev/shm"),
        }
    )
