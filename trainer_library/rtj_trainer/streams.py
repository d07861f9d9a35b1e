"""Positions in data that has no index: iterable datasets, and any other iterable.

A dataset in this process that offers `state_dict` and `load_state_dict` is asked for its state.
Every other stream is begun as its epoch began, random states included, and what was taken before
is taken again and thrown away: exact where the data depends on nothing else, and as slow as the
loading is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from rtj_trainer import randomness
from rtj_trainer.imported import imported
from rtj_trainer.loaders import OwnRandomness, length_of, tell_epoch


class StreamPosition:
    """Brought back by taking the first `taken` batches once more."""

    def __init__(self, loader: Any) -> None:
        data = imported("torch.utils.data")
        self._is_loader = data is not None and isinstance(loader, data.DataLoader)
        self._workers = loader.num_workers if self._is_loader else 0
        self._loader = _without_lasting_workers(loader) if self._workers else loader
        self.taken = 0
        self._began: Mapping[str, Any] = {}
        self.inexact: tuple[str, ...] = (
            "the loader has no state of its own: on a resume its first batches are loaded again "
            "and thrown away",
        )
        if self._workers and not getattr(loader, "in_order", True):
            self.inexact += ("in_order=False: the order of batches is chance",)

    def begin(self, *, epoch: int, resumed: Optional[Mapping[str, Any]] = None) -> Iterator[Any]:
        if resumed is not None:
            randomness.put_back(resumed["began"])
        self._began = randomness.taken()
        tell_epoch(self._loader, epoch)
        self.taken = 0
        with randomness.kept():
            batches = iter(self._loader)
        if not self._workers:
            # Its own stream, begun apart: what the trainer draws next is nobody else's.
            with randomness.kept():
                randomness.begin_at(randomness.drawn())
                batches = OwnRandomness().through(batches)
        randomness.drawn()
        skip = int(resumed["taken"]) if resumed is not None else 0
        for _ in range(skip):
            next(batches, None)
        self.taken = skip
        return self._batches(batches)

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.taken += 1
            yield batch

    def state(self) -> dict[str, Any]:
        return {"kind": "stream", "taken": self.taken, "began": self._began}

    def samples(self) -> Optional[int]:
        return None

    def batch_hash(self) -> Optional[str]:
        return None

    def length(self) -> Optional[int]:
        return length_of(self._loader)


class StatefulDatasetPosition:
    """An iterable dataset in this process that knows its own place: nothing is loaded twice."""

    inexact: tuple[str, ...] = ()

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.taken = 0

    def begin(self, *, epoch: int, resumed: Optional[Mapping[str, Any]] = None) -> Iterator[Any]:
        self.taken = 0
        tell_epoch(self._loader, epoch)
        if resumed is not None:
            self.taken = int(resumed["taken"])
            self._loader.dataset.load_state_dict(resumed["state"])
        with randomness.kept():
            batches = iter(self._loader)
        return self._batches(batches)

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.taken += 1
            yield batch

    def state(self) -> dict[str, Any]:
        state = self._loader.dataset.state_dict()
        return {"kind": "dataset", "taken": self.taken, "state": state}

    def samples(self) -> Optional[int]:
        return None

    def batch_hash(self) -> Optional[str]:
        return None

    def length(self) -> Optional[int]:
        return length_of(self._loader)


def _without_lasting_workers(loader: Any) -> Any:
    """Workers that outlive an epoch go on with their random states, which nobody can read."""
    if not loader.persistent_workers:
        return loader
    options = {
        name: getattr(loader, name)
        for name in (
            "batch_size",
            "num_workers",
            "collate_fn",
            "pin_memory",
            "drop_last",
            "timeout",
            "worker_init_fn",
            "multiprocessing_context",
            "generator",
            "prefetch_factor",
        )
    }
    if loader.batch_size is None:
        options.pop("drop_last")
    with contextlib.suppress(AttributeError):
        options["in_order"] = loader.in_order
    return type(loader)(loader.dataset, **options)
