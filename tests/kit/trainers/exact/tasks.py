"""Small trainings with everything in them that a resume can get wrong: dropout, augmentation,
shuffling, workers, mixed precision, a schedule. Run by `matrix.py`, in an interpreter with torch.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data.distributed import DistributedSampler

SAMPLES, EPOCHS, BATCH = 72, 3, 4
EVERY = 5


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, 16)
        self.blocks = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True), 1
        )
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(x.flatten(2).transpose(1, 2))).mean(1))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten()
        )
        self.head = nn.Linear(8 * 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def sample(index: int, *, doomed: int | None) -> tuple[torch.Tensor, int, int]:
    """An image of a class, flipped and made noisy at random by three libraries."""
    if index == doomed:
        # Once: whoever asks for it dies, in the trainer or in a worker of it.
        mark = Path(os.environ["EXACT_MARK"])
        if not mark.exists():
            mark.touch()
            worker = get_worker_info() is not None
            os.kill(os.getppid() if worker else os.getpid(), signal.SIGKILL)
    generator = torch.Generator().manual_seed(index)
    x = torch.randn(4, 4, 4, generator=generator)
    x = x.flip(-1) if random.random() < 0.5 else x
    return x + 0.1 * torch.randn(4, 4, 4), index % 3, index


class Images(Dataset):
    doomed: int | None = None

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        return sample(index, doomed=self.doomed)


class Stream(IterableDataset):
    """Shuffled through a small buffer, as streams are; a share for each rank and worker."""

    doomed: int | None = None

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world, self.epoch = rank, world, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        mine = range(self.rank * workers + worker, SAMPLES, self.world * workers)
        buffer: list[int] = []
        for index in mine:
            buffer.append(index)
            if len(buffer) == 6:
                yield sample(buffer.pop(random.randrange(6)), doomed=self.doomed)
        for index in buffer:
            yield sample(index, doomed=self.doomed)


def loader_of(case: dict[str, Any], *, rank: int, world: int, doomed: int | None) -> DataLoader:
    workers = case.get("workers", 0)
    common = {"batch_size": BATCH, "num_workers": workers}
    if case["data"] == "stream":
        stream = Stream(rank, world)
        stream.doomed = doomed
        return DataLoader(stream, **common)
    images = Images()
    images.doomed = doomed
    if world > 1:
        return DataLoader(images, sampler=DistributedSampler(images, world, rank), **common)
    return DataLoader(
        images, shuffle=True, persistent_workers=bool(workers and case.get("lasting")), **common
    )


def train(case: dict[str, Any], directory: Path, *, rank: int, world: int, kill: Any) -> None:
    """To the end, or until the kill; `trace-<rank>` gets a line a step, `digest-<rank>` the end."""
    from rtj_trainer import Run

    torch.set_num_threads(1)
    torch.manual_seed(7 + (rank if case.get("own_seed") else 0))
    random.seed(7 + rank)
    model: nn.Module = Transformer() if case["model"] == "transformer" else ConvNet()
    torch.manual_seed(100 + rank)
    wrapped = DistributedDataParallel(model) if world > 1 else model
    if case["optimizer"] == "adamw":
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=3e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=3e-2, momentum=0.9)
    total = 3 * EPOCHS * SAMPLES // BATCH
    if case["schedule"] == "cosine":
        scheduler: Any = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    else:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=total)
    amp = bool(case.get("amp"))
    scaler = torch.amp.GradScaler("cpu", enabled=amp)
    doomed = kill[1] if kill and kill[0] == "loader" else None
    lost = case.get("without")
    if lost in ("rng", "dataloader"):
        _forget(lost)
    run = Run(
        model=wrapped,
        optimizer=None if lost == "optimizer" else optimizer,
        scheduler=scheduler,
        scaler=scaler,
        loader=loader_of(case, rank=rank, world=world, doomed=doomed),
        directory=directory / "saves",
        every=EVERY,
    )
    run.restore()
    if kill and kill[0] == "step":
        kill = ("step", run.steps_done + kill[1])
    with open(directory / f"trace-{rank}", "a") as trace:
        for x, y, indices in run.batches(epochs=EPOCHS):
            if kill == ("step", run.steps_done):
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                loss = nn.functional.cross_entropy(wrapped(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            trace.write(f"{run.steps_done + 1} {run.epoch} {indices.tolist()} {x.sum():.9g}\n")
            trace.flush()
            run.step(loss=loss)
    (directory / f"digest-{rank}").write_text(
        f"{digest(model)} {run.steps_done} {scheduler.last_epoch}"
    )


def _forget(part: str) -> None:
    """As a library would do that does not keep this part."""
    from rtj_trainer.place import Place

    real = Place.take_up

    def take_up(self: Any, extras: Any) -> Any:
        return real(self, {name: value for name, value in extras.items() if name != part})

    Place.take_up = take_up  # type: ignore[method-assign]


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()
