"""Work on many items in a few threads."""

from __future__ import annotations

import threading

import pytest
from rtj_sidecar.runs.at_once import at_once
from rtj_sidecar.stores.base import Cancelled


@pytest.mark.parametrize("threads", [1, 4, 50])
def test_results_are_in_the_order_of_the_items(threads: int) -> None:
    assert at_once(lambda n: n * n, range(30), threads=threads, name="t") == [
        n * n for n in range(30)
    ]
    assert at_once(lambda n: n, [], threads=threads, name="t") == []


def test_no_more_than_the_threads_work_at_once() -> None:
    inside, most, lock = [0], [0], threading.Lock()
    both = threading.Barrier(3)

    def do(item: int) -> int:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        if item < 3:
            both.wait(timeout=30)  # three of them do run beside each other
        with lock:
            inside[0] -= 1
        return item

    at_once(do, range(20), threads=3, name="t")
    assert most == [3]


def test_after_an_error_nothing_more_is_begun_and_what_was_stopped_tells_nothing() -> None:
    begun: list[int] = []
    both = threading.Barrier(2)

    def do(item: int) -> None:
        begun.append(item)
        both.wait(timeout=30)
        if item == 0:
            raise ValueError("the disk")
        raise Cancelled

    with pytest.raises(ValueError, match="the disk"):
        at_once(do, range(1000), threads=2, name="t")
    assert sorted(begun) == [0, 1]


def test_what_was_cancelled_is_cancelled() -> None:
    def do(_: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        at_once(do, range(10), threads=2, name="t")
