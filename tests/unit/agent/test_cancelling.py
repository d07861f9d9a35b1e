"""What runs in a thread for a task that is cancelled ends, and the next waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from rtj_sidecar.cancelling import AnyOf, OneAtATime

SECONDS = 30.0


async def test_two_of_a_kind_never_run_side_by_side() -> None:
    running, most = 0, 0
    told: list[bool] = []
    begun = threading.Event()

    def work(*, cancel: threading.Event) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        begun.set()
        told.append(cancel.wait(SECONDS))
        running -= 1
        return "stopped"

    one, closing = OneAtATime(), threading.Event()
    first = asyncio.create_task(one.call(work, closing=closing))
    await asyncio.to_thread(begun.wait, SECONDS)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    begun.clear()
    second = asyncio.create_task(one.call(work, closing=closing))
    assert await asyncio.to_thread(begun.wait, SECONDS)
    closing.set()
    assert await asyncio.wait_for(second, SECONDS) == "stopped"
    assert (most, told) == (1, [True, True])


async def test_an_error_is_its_callers() -> None:
    def fails(*, cancel: threading.Event) -> None:
        raise ValueError("torn")

    one = OneAtATime()
    for _ in range(2):
        with pytest.raises(ValueError, match="torn"):
            await one.call(fails, closing=threading.Event())


def test_any_of_several_events() -> None:
    one, other = threading.Event(), threading.Event()
    both = AnyOf(one, other)
    assert not both.is_set()
    assert not both.wait(0.01)
    other.set()
    assert both.is_set()
    assert both.wait(SECONDS)
