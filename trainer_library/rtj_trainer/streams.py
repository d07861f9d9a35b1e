"""Positions in data that has no index: iterable datasets, and any other iterable.

A dataset in this process that offers `state_dict` and `load_state_dict` is asked for its state.
Every other stream is begun as its epoch began, random states included, and what was taken before
is taken again and thrown away: exact where the data depends on nothing else, and as slow as the
loading is.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from rtj_trainer import randomness, stopping
from rtj_trainer.imported import imported
from rtj_trainer.loaders import OwnRandomness, generators_of, length_of, tell_epoch


class StreamPosition:
    """Brought back by taking the first `taken` batches once more."""

    def __init__(self, loader: Any, *, deaf_to: Sequence[int] = ()) -> None:
        data = imported("torch.utils.data")
        self._is_loader = data is not None and isinstance(loader, data.DataLoader)
        self._workers = loader.num_workers if self._is_loader else 0
        self._loader = _with_workers_of_an_epoch(loader, deaf_to) if self._workers else loader
        self.taken = 0
        self._began: Mapping[str, Any] = {}
        self._generators, others = generators_of(self._loader)
        self._generators_began: list[Any] = []
        self.inexact: tuple[str, ...] = (
            "the loader has no state of its own: on a resume its first batches are loaded again "
            "and thrown away",
            *others,
        )
        if self._workers and not getattr(loader, "in_order", True):
            self.inexact += ("in_order=False: the order of batches is chance",)

    def begin(self, *, epoch: int, resumed: Optional[Mapping[str, Any]] = None) -> Iterator[Any]:
        is_within = resumed is not None and resumed.get("begun", True)
        if resumed is not None:
            if is_within:
                randomness.put_back(resumed["began"])
            for generator, state in zip(self._generators, resumed.get("generators", ())):
                generator.set_state(state)
        self._began = randomness.taken()
        self._generators_began = self._generators_now()
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
        skip = int(resumed["taken"]) if resumed is not None and is_within else 0
        for _ in range(skip):
            next(batches, None)
        self.taken = skip
        return self._batches(batches)

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.taken += 1
            yield batch

    def state(self) -> dict[str, Any]:
        return {
            "kind": "stream",
            "taken": self.taken,
            "began": self._began,
            "generators": self._generators_began,
        }

    def state_before(self) -> dict[str, Any]:
        return {"kind": "stream", "begun": False, "generators": self._generators_now()}

    def _generators_now(self) -> list[Any]:
        return [generator.get_state() for generator in self._generators]

    def samples(self) -> Optional[int]:
        return None

    def batch_hash(self) -> Optional[str]:
        return None

    def length(self) -> Optional[int]:
        return length_of(self._loader)


class StatefulDatasetPosition:
    """An iterable dataset in this process that knows its own place: nothing is loaded twice."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._is_over = False
        self.taken = 0
        self.inexact: tuple[str, ...] = ()
        if _shuffles_in_a_buffer(loader.dataset):
            self.inexact = (
                "the shuffle buffer of Hugging Face's dataset is not in its state: a resume fills "
                "it anew, and the samples that were in it are left out",
            )

    def begin(self, *, epoch: int, resumed: Optional[Mapping[str, Any]] = None) -> Iterator[Any]:
        self.taken, self._is_over = 0, False
        tell_epoch(self._loader, epoch)
        if resumed is not None:
            self._loader.dataset.load_state_dict(resumed["state"])
            if resumed.get("begun", True):
                self.taken, self._is_over = int(resumed["taken"]), bool(resumed.get("over"))
        if self._is_over:
            # Iterated once more, one that begins anew at its end would give its epoch again.
            return iter(())
        with randomness.kept():
            batches = iter(self._loader)
        return self._batches(batches)

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.taken += 1
            yield batch
        self._is_over = True

    def state(self) -> dict[str, Any]:
        return {
            "kind": "dataset",
            "taken": self.taken,
            "over": self._is_over,
            "state": self._loader.dataset.state_dict(),
        }

    def state_before(self) -> dict[str, Any]:
        state = self._loader.dataset.state_dict()
        return {"kind": "dataset", "begun": False, "state": state}

    def samples(self) -> Optional[int]:
        return None

    def batch_hash(self) -> Optional[str]:
        return None

    def length(self) -> Optional[int]:
        return length_of(self._loader)


def _with_workers_of_an_epoch(loader: Any, deaf_to: Sequence[int]) -> Any:
    """A copy, of any class and with its samplers: workers that outlive an epoch go on with their
    random states, which nobody can read."""
    alike = copy.copy(loader)
    # A DataLoader refuses these assignments after it was made.
    alike.__dict__.update(
        persistent_workers=False,
        _iterator=None,
        worker_init_fn=stopping.deaf(loader.worker_init_fn, deaf_to),
    )
    return alike


def _shuffles_in_a_buffer(dataset: Any) -> bool:
    """Hugging Face's iterable dataset after `shuffle(buffer_size=...)`."""
    if not type(dataset).__module__.startswith("datasets."):
        return False
    part = getattr(dataset, "_ex_iterable", None)
    while part is not None:
        if type(part).__name__ == "BufferShuffledExamplesIterable":
            return True
        part = getattr(part, "ex_iterable", None)
    return False
