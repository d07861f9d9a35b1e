"""The place in streams and in loaders that keep their own, without PyTorch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from rtj_trainer import loaders, randomness
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


def train(loader: Any, *, cuts: list[int]) -> list[tuple[int, Any, float]]:
    """(epoch, item, what the trainer drew after it) of two epochs, saved and begun anew in a
    process of its own after so many items."""
    random.seed(1)
    place = Place(loader(), rank=0, world=1)
    seen: list[tuple[int, Any, float]] = []
    step = 0
    while place.epochs_done < 2:
        is_cut = False
        for item in place.rest_of_epoch():
            seen.append((place.epoch, item, random.random()))
            step += 1
            if step in cuts:
                state = place.own_state()
                extras = {name: [value] for name, value in state.items()}
                extras |= {"epoch": place.epoch, "step": step}
                random.seed(step)  # another process has other states
                place = Place(loader(), rank=0, world=1)
                place.take_up(extras)
                random.random()  # and a script draws before its first batch
                is_cut = True
                break
        if not is_cut:
            place.epoch_is_over()
    return seen


@pytest.mark.parametrize("loader", [Noisy, Numbered, lambda: list(range(7))])
@pytest.mark.parametrize("cuts", [[1], [5], [8], [3, 4, 11], [7, 9]])
def test_wherever_it_is_cut_items_and_draws_are_the_same(loader: Any, cuts: list[int]) -> None:
    assert train(loader, cuts=cuts) == train(loader, cuts=[])


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
