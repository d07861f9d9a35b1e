"""The position in a PyTorch DataLoader over a map-style dataset: nothing is loaded to skip it.

The order of an epoch is drawn at its beginning, as a list, from random states that are kept with
the position: drawn again, it is the same, and the rest of it is what is left. Batches come from a
second DataLoader with the same options whose sampler is that rest. In workers each batch begins
at a random state of its own, made of the epoch and the place of the batch in it, so that it does
not matter which worker makes it, nor what it made before. Without workers the dataset draws from
the trainer's own random states, as always.

With DistributedSampler the position counts the samples of the whole gang and holds for any number
of ranks. Every other sampler is the rank's own, and holds for the same number of ranks only.
"""

from __future__ import annotations

import itertools
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from rtj_trainer import orders, randomness, sharing, stopping
from rtj_trainer.imported import imported
from rtj_trainer.loaders import generators_of, length_of, tell_epoch

_OPTIONS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


class SeededDataset:
    """The user's dataset in a worker: each batch begins with random states of its own."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        if name == "_dataset":  # asked for while it is unpickled
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_dataset":
            object.__setattr__(self, name, value)
        else:  # `get_worker_info().dataset.x = ...` in a worker_init_fn means the user's
            setattr(self._dataset, name, value)

    def __getitems__(self, portion: tuple[int, Sequence[Any]]) -> Any:
        seed, indices = portion
        randomness.begin_at(seed)
        many = getattr(self._dataset, "__getitems__", None)
        if callable(many):
            return many(indices)
        return [self._dataset[index] for index in indices]

    def __getitem__(self, portion: tuple[int, Any]) -> Any:
        seed, index = portion
        randomness.begin_at(seed)
        return self._dataset[index]


class _Rest:
    """What the second loader's sampler gives: the epoch's batches that are left."""

    def __init__(self) -> None:
        self.portions: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        return self.portions


class MapPosition:
    """See the module. `rank` and `world` are those of the gang."""

    def __init__(self, loader: Any, *, rank: int, world: int, deaf_to: Sequence[int] = ()) -> None:
        self._batching = _batching_of(loader)
        self._is_shared = orders.is_distributed(loader.sampler) and self._batching == "plain"
        if self._is_shared:  # ranks that share a model also share its samples
            rank, world = loader.sampler.rank, loader.sampler.num_replicas
        self._loader, self._rank, self._world = loader, rank, world
        self._rest = _Rest()
        self._second = _second(loader, self._rest, deaf_to)
        self._began: Mapping[str, Any] = {}
        self._generators, others = generators_of(loader)
        self._generators_began: list[Any] = []
        self._seed = 0
        self._cursor = 0
        self._upcoming: dict[int, Any] = {}
        self._newest: Any = None
        self.taken = 0
        self.inexact: tuple[str, ...] = others
        if length_of(_indices(loader, self._batching)) is None:
            self.inexact += ("the sampler has no length: exact only if it draws nothing at random",)
        if loader.num_workers and not getattr(loader, "in_order", True):
            self.inexact += ("in_order=False: the order of batches is chance",)

    def begin(self, *, epoch: int, resumed: Optional[Mapping[str, Any]] = None) -> Iterator[Any]:
        if resumed is not None:
            for generator, state in zip(self._generators, resumed["generators"]):
                generator.set_state(state)
            if not resumed.get("begun", True):
                resumed = None
        if resumed is not None:
            self._check(resumed)
            randomness.put_back(resumed["began"])
        self._began = randomness.taken()
        self._generators_began = self._generators_now()
        self._seed = randomness.drawn(self._loader.generator)
        tell_epoch(self._loader, epoch)
        self._cursor = int(resumed["cursor"]) if resumed is not None else 0
        self.taken = int(resumed["taken"]) if resumed is not None else 0
        self._upcoming = {}
        self._rest.portions = self._portions(self._order())
        generator = self._loader.generator
        before = generator.get_state() if generator is not None else None
        with randomness.kept():
            batches = iter(self._second)
        if generator is not None:
            generator.set_state(before)
        return self._batches(batches)

    def _check(self, resumed: Mapping[str, Any]) -> None:
        if resumed["shared"] != self._is_shared or (
            not self._is_shared and resumed["world"] != self._world and resumed["cursor"]
        ):
            raise ValueError(
                f"the save stands within an epoch that {resumed['world']} ranks shared by a "
                "sampler of their own: go on with as many ranks, or give the loader a "
                "DistributedSampler, whose order does not depend on them"
            )

    def _generators_now(self) -> list[Any]:
        return [generator.get_state() for generator in self._generators]

    def _order(self) -> Any:
        """The whole epoch: samples, or batches of a batch sampler of the user's own."""
        if self._is_shared:
            return orders.order_of_all(self._loader.sampler)
        indices = _indices(self._loader, self._batching)
        if orders.is_sequential(indices):
            return range(len(indices.data_source))
        if orders.is_permutation(indices):
            return orders.Permutation(orders.permuted(indices))
        length = length_of(indices)
        if length is None:
            return indices
        # A list even where PyTorch would not make one: what a sampler draws at random is drawn
        # here, before the trainer draws anything. One that gives more than it says may be endless.
        drawn = iter(indices)
        order = list(itertools.islice(drawn, length + 1))
        return order if len(order) <= length else itertools.chain(order, drawn)

    def _portions(self, order: Any) -> Iterator[Any]:
        with_seed = self._loader.num_workers > 0
        for number, (cursor, indices) in enumerate(self._cut(order), self.taken + 1):
            self._upcoming[number] = (cursor, indices)
            seed = randomness.mixed(self._seed, cursor, self._rank)
            yield (seed, indices) if with_seed else indices

    def _cut(self, order: Any) -> Iterator[tuple[int, Any]]:
        """(cursor after it, indices) of each batch that is left."""
        cursor = self._cursor
        if self._batching == "plain":
            size, drop = self._loader.batch_size, self._loader.drop_last
            if not sharing.is_known_order(order):
                order = _skipped(iter(order), cursor)
                for indices in _batched(iter(order), size, drop):
                    cursor += len(indices)
                    yield cursor, indices
                return
            world = self._world if self._is_shared else 1
            rank = self._rank if self._is_shared else 0
            drop_tail = bool(getattr(self._loader.sampler, "drop_last", False))
            mine = sharing.share_of(
                order, cursor=cursor, rank=rank, world=world, drop_last=drop_tail
            )
            for indices in sharing.batches_of(mine, size=size, drop_last=drop):
                cursor += len(indices) * world
                yield cursor, indices
            return
        rest = order[cursor:] if sharing.is_known_order(order) else _skipped(iter(order), cursor)
        for indices in rest:
            cursor += 1
            yield cursor, indices

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.taken += 1
            self._cursor, self._newest = self._upcoming.pop(self.taken)
            yield batch

    def state(self) -> dict[str, Any]:
        return {
            "kind": "map",
            "taken": self.taken,
            "cursor": self._cursor,
            "shared": self._is_shared,
            "world": self._world,
            "began": self._began,
            "generators": self._generators_began,
        }

    def state_before(self) -> dict[str, Any]:
        return {"kind": "map", "begun": False, "generators": self._generators_now()}

    def samples(self) -> Optional[int]:
        if self._batching != "plain":
            return None
        return self._cursor if self._is_shared else self._cursor * self._world

    def batch_hash(self) -> Optional[str]:
        """CRC-32 of the indices; None where an index is no number of 64 bits."""
        newest = self._newest if isinstance(self._newest, list) else [self._newest]
        try:
            return f"{zlib.crc32(array('q', newest).tobytes()):08x}"
        except (TypeError, OverflowError):
            return None

    def length(self) -> Optional[int]:
        return length_of(self._loader)


def _batching_of(loader: Any) -> str:
    """`plain`: PyTorch's own BatchSampler; `own`: another; `none`: batch_size=None."""
    if loader.batch_sampler is None:
        return "none"
    is_plain = type(loader.batch_sampler) is imported("torch.utils.data").BatchSampler
    return "plain" if is_plain and loader.batch_size is not None else "own"


def _indices(loader: Any, batching: str) -> Any:
    return loader.batch_sampler if batching == "own" else loader.sampler


def _second(loader: Any, rest: _Rest, deaf_to: Sequence[int]) -> Any:
    options = {name: getattr(loader, name) for name in _OPTIONS if hasattr(loader, name)}
    if loader.num_workers:
        options["worker_init_fn"] = stopping.deaf(loader.worker_init_fn, deaf_to)
    dataset = SeededDataset(loader.dataset) if loader.num_workers else loader.dataset
    chosen: dict[str, Any] = {"batch_sampler": rest}
    if loader.batch_sampler is None:
        chosen = {"sampler": rest, "batch_size": None}
    return type(loader)(dataset, generator=loader.generator, **chosen, **options)


def _skipped(indices: Iterator[Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        next(indices, None)
    return indices


def _batched(indices: Iterator[Any], size: int, drop_last: bool) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for index in indices:
        batch.append(index)
        if len(batch) == size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch
