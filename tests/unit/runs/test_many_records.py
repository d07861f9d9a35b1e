"""The collector looks less often while records are read, and as before afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from rtj_sidecar.runs.many_records import SELDOM, many_records


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield (700, 10, 10)
    gc.set_threshold(*before)


def test_it_looks_less_often_and_is_never_off(usual: tuple[int, int, int]) -> None:
    with many_records(), many_records():
        assert gc.isenabled()
        assert gc.get_threshold() == (SELDOM, 10, 10)
    assert gc.get_threshold() == usual


def test_an_error_leaves_it_as_it_was(usual: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="read"), many_records():
        raise ValueError("read")
    assert gc.get_threshold() == usual


def test_two_threads_whose_blocks_overlap_leave_it_as_it_was(usual: tuple[int, int, int]) -> None:
    entered, first_is_out = threading.Event(), threading.Event()

    def second() -> None:
        with many_records():
            entered.set()
            assert first_is_out.wait(10)

    other = threading.Thread(target=second)
    with many_records():
        other.start()
        assert entered.wait(10)
    first_is_out.set()
    other.join()
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("own", [0, SELDOM * 2])
def test_a_rarer_one_stays_as_it_was_set(own: int) -> None:
    gc.set_threshold(own, 10, 10)
    with many_records():
        assert gc.get_threshold()[0] == own
    assert gc.get_threshold()[0] == own
