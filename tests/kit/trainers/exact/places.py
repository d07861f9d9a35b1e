"""Places in PyTorch's own loaders that a resume got wrong once. Says `NAME ok` of each.

Run by an interpreter with torch: `python places.py`.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rtj_trainer import Run
from rtj_trainer.loaders import position_of
from rtj_trainer.map_style import MapPosition
from rtj_trainer.place import Place
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler


class Noisy(Dataset):
    name = ""
    must_be_named = False

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[int, float]:
        if self.must_be_named:
            assert self.name == "of worker 0", self.name
        return index, random.random() + torch.rand(1).item()


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[float]:
        for _ in range(6):
            yield torch.rand(1).item()


class OtherLoader(DataLoader):
    """A class of the user's own, so its place is that of a stream."""

    def __init__(self, dataset: Any, *, chosen: list[int]) -> None:
        super().__init__(
            dataset, 2, sampler=chosen, num_workers=1, persistent_workers=True, drop_last=True
        )


class Endless:
    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(6))


def _named(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.name = f"of worker {worker}"


def plain(batch: Any) -> Any:
    return (
        batch.tolist() if hasattr(batch, "tolist") else [torch.as_tensor(b).tolist() for b in batch]
    )


def train(make: Callable[[], Any], *, tops: tuple[int, ...], cut: int) -> list[Any]:
    """Three epochs; with a new process before the first batch of each epoch in `tops`, and after
    `cut` batches of the second."""
    torch.manual_seed(3)
    random.seed(3)
    place, seen = Place(make(), rank=0, world=1), []
    while place.epochs_done < 3:
        place.next_epoch()
        if place.epoch in tops and not place.taken:
            place = again(place, make)
        is_cut = False
        for batch in place.rest_of_epoch():
            seen.append((place.epoch, plain(batch), torch.rand(1).item()))
            if place.epoch == 1 and place.taken == cut:
                place, is_cut = again(place, make), True
                break
        if not is_cut:
            place.epoch_is_over()
    return seen


def again(place: Place, make: Callable[[], Any]) -> Place:
    extras = {name: [value] for name, value in place.own_state().items()}
    extras |= place.shared_state()
    torch.manual_seed(99)
    place = Place(make(), rank=0, world=1)
    place.take_up(extras)
    torch.rand(1)
    return place


def own() -> torch.Generator:
    return torch.Generator().manual_seed(8)


def in_a_batch_sampler() -> DataLoader:
    sampler = RandomSampler(Noisy(), generator=own())
    return DataLoader(Noisy(), batch_sampler=type("Own", (BatchSampler,), {})(sampler, 5, False))


MAKERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(Noisy(), 5, shuffle=True),
    "workers": lambda: DataLoader(Noisy(), 5, shuffle=True, num_workers=1),
    "generator": lambda: DataLoader(Noisy(), 5, shuffle=True, generator=own()),
    "batch sampler": in_a_batch_sampler,
    "stream": lambda: DataLoader(Stream(), 2),
    "stream with a generator": lambda: DataLoader(Stream(), 2, num_workers=1, generator=own()),
}


def trained(directory: str, *totals: int) -> tuple[list[float], int]:
    """The weights and the samples counted after so many epochs in all, each total a process."""
    steps: list[int] = []
    for total in totals:
        torch.manual_seed(4)
        random.seed(4)
        model = torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Dropout(0.3))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        loader = DataLoader(Noisy(), 5, shuffle=True)
        run = Run(model=model, optimizer=optimizer, loader=loader, directory=directory)
        run.restore()
        for epoch in run.epochs(total):
            if epoch == 1:
                run.save()
            for _, x in run.batches():
                optimizer.zero_grad()
                model(x.float()[:, None]).sum().backward()
                optimizer.step()
                run.step()
        steps.append(run.steps_done)
    assert steps == [3 * total for total in totals], steps
    return model[0].weight.flatten().tolist(), run._place.samples


def main() -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole, more = trained(one, 4), trained(other, 1, 2, 4)
        assert whole == more, (whole, more)
        assert whole[1] == 48
        print("more epochs than were asked for first ok")
    named = Noisy()
    named.must_be_named = True
    workers = DataLoader(named, 5, num_workers=1, worker_init_fn=_named)
    assert len(list(MapPosition(workers, rank=0, world=1).begin(epoch=0))) == 3
    print("a dataset that a worker_init_fn changes ok")
    endless = DataLoader(Noisy(), 4, sampler=Endless())
    position = MapPosition(endless, rank=0, world=1)
    given = position.begin(epoch=0)
    assert [next(given)[0].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 0, 1]]
    again_given = MapPosition(endless, rank=0, world=1).begin(epoch=0, resumed=position.state())
    for left in (given, again_given):
        assert [next(left)[0].tolist() for _ in range(2)] == [[2, 3, 4, 5], [0, 1, 2, 3]]
    print("a sampler beyond its length ok")
    for name, make in MAKERS.items():
        whole = train(make, tops=(), cut=0)
        assert len({epoch for epoch, _, _ in whole}) == 3
        for tops, cut in (((0, 1, 2), 0), ((), 2), ((1, 2), 1)):
            found = train(make, tops=tops, cut=cut)
            assert found == whole, (name, tops, cut, found, whole)
        print(name, "ok")
    shares = []
    for rank in range(4):  # two ranks share each model
        data = Noisy()
        sampler = DistributedSampler(data, 2, rank // 2, shuffle=False)
        position = MapPosition(DataLoader(data, 3, sampler=sampler), rank=rank, world=4)
        batches = [batch[0].tolist() for batch in position.begin(epoch=0)]
        shares.append(batches)
        assert position.samples() == 12, position.samples()
    assert shares[0] == shares[1] == [[0, 2, 4], [6, 8, 10]], shares
    assert shares[2] == shares[3] == [[1, 3, 5], [7, 9, 11]], shares
    print("ranks of one model ok")
    loader = OtherLoader(Noisy(), chosen=[7, 3, 5, 1, 11])
    position = position_of(loader)
    for epoch in range(2):
        assert [b[0].tolist() for b in position.begin(epoch=epoch)] == [[7, 3], [5, 1]]
    assert loader.persistent_workers
    print("a loader of another class ok")


if __name__ == "__main__":
    main()
