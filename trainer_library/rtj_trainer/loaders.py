"""Where a run stands in its data, for each kind of loader.

A position has an epoch's number, counts what was taken in it, gives the rest of an epoch as an
iterator, and states itself as plain values. It takes nothing ahead of the trainer: a batch counts
as taken when the trainer is given it. `position_of` picks the kind; each says in `inexact` what
it cannot bring back exactly. Must never change the user's loader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Protocol

from rtj_trainer import randomness
from rtj_trainer.imported import imported


class Position(Protocol):
    """`taken`: batches of this rank in the epoch that began last."""

    inexact: tuple[str, ...]
    taken: int

    def begin(self, *, epoch: int, resumed: Optional[Mapping[str, Any]] = None) -> Iterator[Any]:
        """The batches of an epoch; with `resumed`, those that are left of it. The global random
        states are left where the epoch's beginning puts them: a caller that resumes sets them."""

    def state(self) -> dict[str, Any]:
        """This moment, as plain values."""

    def state_before(self) -> dict[str, Any]:
        """The moment before an epoch that is not begun, as plain values; `begun` is False."""

    def samples(self) -> Optional[int]:
        """Samples of the whole gang taken in this epoch; None where they cannot be counted."""

    def batch_hash(self) -> Optional[str]:
        """Which samples the newest batch was made of; None where that is not known."""

    def length(self) -> Optional[int]:
        """Batches of this rank in an epoch that is not cut; None where nobody knows."""


def position_of(
    loader: Any, *, rank: int = 0, world: int = 1, deaf_to: Sequence[int] = ()
) -> Position:
    """The kind of position that fits the loader; its workers do not end by the signals in
    `deaf_to`, which are the trainer's. Raises TypeError for what is no iterable."""
    from rtj_trainer import map_style, streams

    if not hasattr(loader, "__iter__"):
        raise TypeError(f"loader is a {type(loader).__name__}, which cannot be iterated")
    if has_state(loader):
        return StatefulPosition(loader)
    data = imported("torch.utils.data")
    if data is None or not isinstance(loader, data.DataLoader):
        return streams.StreamPosition(loader, deaf_to=deaf_to)
    if isinstance(loader.dataset, data.IterableDataset):
        if loader.num_workers == 0 and has_state(loader.dataset):
            return streams.StatefulDatasetPosition(loader)
        return streams.StreamPosition(loader, deaf_to=deaf_to)
    if type(loader) is not data.DataLoader:
        return streams.StreamPosition(loader, deaf_to=deaf_to)
    return map_style.MapPosition(loader, rank=rank, world=world, deaf_to=deaf_to)


def has_state(thing: Any) -> bool:
    """It offers `state_dict` and `load_state_dict`."""
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None)
    )


def length_of(loader: Any) -> Optional[int]:
    """`len(loader)`, None where it has none."""
    try:
        return len(loader)
    except TypeError:
        return None


def generators_of(loader: Any) -> tuple[list[Any], tuple[str, ...]]:
    """The generators of PyTorch that a loader and its samplers draw from, and in words those of
    other libraries, whose states are not kept."""
    found: list[Any] = []
    others: list[str] = []
    parts, seen = [loader], list[Any]()
    while parts:
        part = parts.pop(0)
        if part is None or any(part is other for other in seen):
            continue
        seen.append(part)
        parts += [getattr(part, "sampler", None), getattr(part, "batch_sampler", None)]
        generator = getattr(part, "generator", None)
        if callable(getattr(generator, "get_state", None)):
            if all(generator is not other for other in found):
                found.append(generator)
        elif generator is not None:
            kind = f"{type(part).__name__} draws from a {type(generator).__name__}"
            others.append(f"{kind} of its own, which is not kept: give it a torch.Generator")
    return found, tuple(others)


def tell_epoch(loader: Any, epoch: int) -> None:
    """Calls `set_epoch` of the loader and what it is made of, as far as they have one."""
    parts = (loader, *(getattr(loader, n, None) for n in ("sampler", "batch_sampler", "dataset")))
    seen: list[Any] = []
    for part in parts:
        if part is None or any(part is other for other in seen):
            continue
        seen.append(part)
        if callable(getattr(part, "set_epoch", None)):
            part.set_epoch(epoch)


class StatefulPosition:
    """A loader that keeps its own position: torchdata's StatefulDataLoader and its like."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._is_over = self._is_iterated = False
        self.taken = 0
        self.inexact: tuple[str, ...] = ()
        if getattr(loader, "num_workers", 0):
            self.inexact = (
                f"{type(loader).__name__} does not keep the random states of its workers: samples "
                "and their order go on, what is drawn at random in a worker does not",
            )

    def begin(self, *, epoch: int, resumed: Optional[Mapping[str, Any]] = None) -> Iterator[Any]:
        self.taken, self._is_over = 0, False
        # Before its state: a sampler's order is drawn again from the number of the epoch.
        tell_epoch(self._loader, epoch)
        # One that had come to its end gives the next epoch when it is iterated.
        if resumed is not None and resumed["state"] is not None:
            self._loader.load_state_dict(resumed["state"])
        self._is_iterated = True
        if resumed is not None and resumed.get("begun", True):
            self.taken, self._is_over = int(resumed["taken"]), bool(resumed["over"])
        return iter(()) if self._is_over else self._batches(iter(self._loader))

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.taken += 1
            yield batch
        self._is_over = True

    def state(self) -> dict[str, Any]:
        return {
            "kind": "stateful",
            "taken": self.taken,
            "over": self._is_over,
            "state": self._loader.state_dict(),
        }

    def state_before(self) -> dict[str, Any]:
        # One that was never iterated is not asked: to answer, it would begin, and draw.
        state = self._loader.state_dict() if self._is_iterated else None
        return {"kind": "stateful", "begun": False, "taken": 0, "state": state}

    def samples(self) -> Optional[int]:
        return None

    def batch_hash(self) -> Optional[str]:
        return None

    def length(self) -> Optional[int]:
        return length_of(self._loader)


class NoPosition:
    """A run without a loader: the script finds its data from the step by itself."""

    inexact: tuple[str, ...] = ()
    taken = 0

    def begin(self, *, epoch: int, resumed: Optional[Mapping[str, Any]] = None) -> Iterator[Any]:
        raise ValueError("Run has no loader: give it one, or count steps by run.steps_done")

    def state(self) -> dict[str, Any]:
        return {"kind": "none"}

    def state_before(self) -> dict[str, Any]:
        return self.state()

    def samples(self) -> Optional[int]:
        return None

    def batch_hash(self) -> Optional[str]:
        return None

    def length(self) -> Optional[int]:
        return None


class OwnRandomness:
    """A stream of random numbers beside the trainer's: what the data draws in this process does
    not depend on what the model drew in between, so it can be drawn again alone."""

    def __init__(self) -> None:
        self._states = randomness.taken()

    def through(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches; each is fetched with the stream's own states."""
        while True:
            outside = randomness.taken()
            randomness.put_back(self._states)
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                self._states = randomness.taken()
                randomness.put_back(outside)
            yield batch
