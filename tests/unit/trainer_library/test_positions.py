"""The place in streams and in loaders that keep their own, without PyTorch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rtj_trainer import loaders, randomness, streams
from rtj_trainer.place import Place


class Noisy:
    """A stream whose items are drawn at random."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[float]:
        for _ in range(8):
            self.made += 1
            yield random.random()


class Numbered:
    """A loader that keeps its own place, as torchdata's does: at an epoch's end it begins anew."""

    def __init__(self) -> None:
        self.at = 0

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[int]:
        while self.at < 5:
            self.at += 1
            yield self.at
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def resumed(place: Place, loader: Any, *, step: int) -> Place:
    """The place in a process of its own, after a save of this one."""
    extras = {name: [value] for name, value in place.own_state().items()}
    extras |= {**place.shared_state(), "step": step}
    extras["rtj_trainer"] = {"samples_before": place.samples_before_epoch()}
    random.seed(step)  # another process has other states
    place = Place(loader(), rank=0, world=1)
    place.take_up(extras)
    random.random()  # and a script draws before its first batch
    return place


def train(
    loader: Any, *, cuts: list[int], tops: tuple[int, ...] = ()
) -> list[tuple[int, Any, float]]:
    """(epoch, item, what the trainer drew after it) of two epochs, saved and begun anew after so
    many items, and before the first item of each epoch in `tops` (twice: also before a batch)."""
    random.seed(1)
    place = Place(loader(), rank=0, world=1)
    seen: list[tuple[int, Any, float]] = []
    step = 0
    while place.epochs_done < 2:
        is_cut = False
        place.next_epoch()
        if place.epoch in tops and place.taken == 0:
            place = resumed(resumed(place, loader, step=90), loader, step=91)
        for item in place.rest_of_epoch():
            seen.append((place.epoch, item, random.random()))
            step += 1
            if step in cuts:
                place = resumed(place, loader, step=step)
                is_cut = True
                break
        if not is_cut:
            place.epoch_is_over()
    return seen


@pytest.mark.parametrize("loader", [Noisy, Numbered, lambda: list(range(7))])
@pytest.mark.parametrize("cuts", [[1], [5], [8], [3, 4, 11], [7, 9]])
def test_wherever_it_is_cut_items_and_draws_are_the_same(loader: Any, cuts: list[int]) -> None:
    assert train(loader, cuts=cuts) == train(loader, cuts=[])


@pytest.mark.parametrize("loader", [Noisy, Numbered, lambda: list(range(7))])
@pytest.mark.parametrize("tops", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("cuts", [[], [3, 9]])
def test_a_save_before_the_first_batch_of_an_epoch_gives_all_of_it(
    loader: Any, tops: tuple[int, ...], cuts: list[int]
) -> None:
    assert train(loader, cuts=cuts, tops=tops) == train(loader, cuts=[])


class Counted(loaders.NoPosition):
    """Five samples an epoch."""

    def begin(self, *, epoch: int, resumed: Any = None) -> Iterator[int]:
        self.taken = 5
        return iter(range(5))

    def samples(self) -> int:
        return self.taken


def test_the_samples_of_an_epoch_that_is_over_are_counted_once() -> None:
    place = Place(None, rank=0, world=1)
    place.position = Counted()
    for expected in (5, 10):
        assert len(list(place.rest_of_epoch())) == 5
        place.epoch_is_over()
        assert place.samples == expected
    place.next_epoch()
    assert (place.epoch, place.samples, place.taken) == (2, 10, 0)
    again = resumed(place, lambda: list(range(7)), step=1)
    assert (again.epoch, again.epochs_done, again.taken) == (2, 2, 0)


class One:
    """A loader without workers: what the dataset gives."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)


def test_a_dataset_that_was_at_its_end_does_not_give_its_epoch_again() -> None:
    loader = One(Numbered())
    first = streams.StatefulDatasetPosition(loader)
    assert list(first.begin(epoch=0)) == [1, 2, 3, 4, 5]
    saved = first.state()
    second = streams.StatefulDatasetPosition(loader)
    assert list(second.begin(epoch=0, resumed=saved)) == []
    assert second.taken == 5
    assert list(second.begin(epoch=1)) == [1, 2, 3, 4, 5]


def test_a_generator_within_a_sampler_of_a_sampler_is_found_and_a_strange_one_is_named() -> None:
    own, numpys = SimpleNamespace(get_state=lambda: 1), SimpleNamespace(bit_generator=1)
    inner = SimpleNamespace(generator=own)
    loader = SimpleNamespace(
        batch_sampler=SimpleNamespace(sampler=inner, generator=numpys), sampler=inner
    )
    found, others = loaders.generators_of(loader)
    assert found == [own]
    assert "give it a torch.Generator" in others[0]


def test_what_is_loaded_twice_is_said() -> None:
    assert "loaded again" in loaders.position_of(Noisy()).inexact[0]
    assert loaders.position_of(Numbered()).inexact == ()


def test_what_cannot_be_iterated_is_no_loader() -> None:
    with pytest.raises(TypeError, match="loader is a int, which cannot be iterated"):
        loaders.position_of(3)


def test_without_a_loader_nothing_can_be_asked_for() -> None:
    with pytest.raises(ValueError, match="Run has no loader"):
        Place(None, rank=0, world=1).rest_of_epoch()


def test_random_states_come_back_and_leave_no_trace() -> None:
    before = randomness.taken()
    with randomness.kept():
        randomness.begin_at(5)
        first = random.random()
    assert randomness.taken()["python"] == before["python"]
    with randomness.kept():
        randomness.begin_at(5)
        assert random.random() == first
    assert randomness.mixed(1, 2) != randomness.mixed(2, 1)
