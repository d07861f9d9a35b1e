"""The orders that PyTorch's own samplers give, whole and without walking through them.

Each draws what the sampler would draw, so that a run with this library takes the samples that it
would take without. Samplers of any other type are asked one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from rtj_trainer.imported import imported


class Permutation:
    """An order as one tensor, of which only what is asked for becomes numbers: of ten million
    samples a list takes a second, each time."""

    def __init__(self, order: Any) -> None:
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, part: slice) -> Permutation:
        return Permutation(self._order[part])

    def __iter__(self) -> Iterator[int]:
        return iter(self._order.tolist())


def is_distributed(sampler: Any) -> bool:
    """PyTorch's own, whose order does not depend on the number of ranks."""
    module = imported("torch.utils.data.distributed")
    return module is not None and type(sampler) is module.DistributedSampler


def is_sequential(sampler: Any) -> bool:
    """It gives 0, 1, 2, …"""
    return type(sampler) is imported("torch.utils.data").SequentialSampler


def is_permutation(sampler: Any) -> bool:
    """PyTorch's own, each sample once."""
    data = imported("torch.utils.data")
    if type(sampler) is not data.RandomSampler or sampler.replacement:
        return False
    return bool(sampler.num_samples == len(sampler.data_source))


def permuted(sampler: Any) -> Any:
    """What RandomSampler draws, in its own order of drawing, so that a run with this library takes
    the samples that it would take without."""
    torch = imported("torch")
    count, generator = len(sampler.data_source), sampler.generator
    if generator is None:
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    order = torch.randperm(count, generator=generator)
    torch.randperm(count, generator=generator)  # of which it takes none, for it has them all
    return order


def order_of_all(sampler: Any) -> list[int]:
    """DistributedSampler's order before it is shared: that of a gang of one."""
    alone = copy.copy(sampler)
    alone.num_replicas, alone.rank = 1, 0
    alone.num_samples = alone.total_size = len(sampler.dataset)
    return list(alone)
