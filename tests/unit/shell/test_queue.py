"""The keyed queue, without a running clock; its `get` with a real loop where waiting matters."""

from __future__ import annotations

import asyncio

import pytest
from rtj_operator.shell.queue import KeyQueue


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> KeyQueue[str]:
    return KeyQueue(clock=clock, backoff_base=1, backoff_max=10)


def test_the_same_key_waits_once(queue: KeyQueue[str]) -> None:
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert [queue.take(), queue.take(), queue.take()] == ["a", "b", None]


def test_a_key_added_while_active_runs_again_and_never_twice_at_once(queue: KeyQueue[str]) -> None:
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    queue.add("a")
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == "a"
    queue.done("a")
    assert queue.take() is None


def test_the_earliest_wish_wins(queue: KeyQueue[str], clock: Clock) -> None:
    queue.add_at("a", 130)
    queue.add_at("a", 110)
    queue.add_at("a", 120)
    assert queue.seconds_to_next() == 10
    clock.now = 109.9
    assert queue.take() is None
    clock.now = 110
    assert queue.take() == "a"
    queue.done("a")
    clock.now = 200
    assert queue.take() is None, "a wish overtaken by an earlier one must not run again"


def test_taking_a_key_forgets_its_wish(queue: KeyQueue[str], clock: Clock) -> None:
    queue.add_at("a", 110)
    queue.add("a")
    assert queue.take() == "a"
    queue.done("a")
    clock.now = 200
    assert queue.take() is None


def test_a_wish_that_falls_due_while_active_runs_after(queue: KeyQueue[str], clock: Clock) -> None:
    queue.add("a")
    queue.take()
    queue.add_at("a", 101)
    clock.now = 102
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == "a"


def test_failures_back_off_and_success_resets(queue: KeyQueue[str], clock: Clock) -> None:
    delays = []
    for _ in range(6):
        queue.add("a")
        queue.take()
        delays.append(queue.retry("a"))
    assert delays == [1, 2, 4, 8, 10, 10]
    clock.now += 10
    assert queue.take() == "a"
    queue.done("a")
    queue.add("a")
    queue.take()
    assert queue.retry("a") == 1


def test_a_servers_wish_for_more_time_is_kept(queue: KeyQueue[str], clock: Clock) -> None:
    queue.add("a")
    queue.take()
    assert queue.retry("a", after=7) == 7
    clock.now += 6.9
    assert queue.take() is None
    clock.now += 0.1
    assert queue.take() == "a"


def test_oldest_counts_hints_on_active_keys_too(queue: KeyQueue[str], clock: Clock) -> None:
    assert queue.oldest_seconds() == 0
    queue.add("a")
    queue.take()
    clock.now += 5
    queue.add("a")
    clock.now += 2
    assert queue.oldest_seconds() == 2
    assert queue.longest_active_seconds() == 7
    queue.done("a")
    assert queue.oldest_seconds() == 2


def test_a_cheap_key_is_never_made_to_wait(queue: KeyQueue[str], clock: Clock) -> None:
    for _ in range(50):
        queue.add("a")
        assert queue.take() == "a"
        clock.now += 0.01
        queue.spent("a", 0.01)
        queue.done("a")


def test_a_costly_key_gets_a_share_of_the_time_and_no_hint_is_lost(
    queue: KeyQueue[str], clock: Clock
) -> None:
    passes, until = 0, clock.now + 100
    queue.add("big")
    while clock.now < until:
        if queue.take() == "big":
            passes += 1
            clock.now += 0.5
            queue.add("big")  # it is never quiet
            queue.spent("big", 0.5)
            queue.done("big")
        else:
            clock.now += queue.seconds_to_next() or 0.0
    assert 0.18 * 100 <= passes * 0.5 <= 0.22 * 100 + 1.5


def test_what_is_urgent_may_go_into_debt_but_not_for_ever(
    queue: KeyQueue[str], clock: Clock
) -> None:
    queue.add("big")
    queue.take()
    queue.spent("big", 1.1)
    queue.add("big", urgent=True)
    assert queue.take() is None, "it is being worked on"
    queue.done("big")
    assert queue.take() == "big"
    queue.spent("big", 5)
    queue.add("big", urgent=True)
    queue.done("big")
    assert queue.take() is None
    assert 0 < (queue.seconds_to_next() or 0) <= 2
    queue.add("big")
    clock.now += 2
    assert queue.take() == "big"
    queue.done("big")
    assert queue.take() is None, "one look answers all hints"


def test_an_urgent_hint_overtakes_a_paced_one(queue: KeyQueue[str], clock: Clock) -> None:
    queue.add("big")
    queue.take()
    queue.spent("big", 1.1)
    queue.done("big")
    queue.add("big")
    assert queue.take() is None
    queue.add("big", urgent=True)
    assert queue.take() == "big"
    queue.done("big")
    clock.now += 100
    assert queue.take() is None


def test_a_wish_for_later_is_paced_too(queue: KeyQueue[str], clock: Clock) -> None:
    queue.add("big")
    queue.take()
    queue.spent("big", 1.1)
    queue.done("big")
    queue.add_after("big", 0.01)
    clock.now += 0.01
    assert queue.take() is None
    clock.now += queue.seconds_to_next() or 0.0
    assert queue.take() == "big"


def test_a_key_that_is_gone_leaves_nothing_and_keeps_a_hint(queue: KeyQueue[str]) -> None:
    queue.add("a")
    queue.take()
    queue.spent("a", 3)
    queue.add("a")  # one of the same name was made meanwhile
    queue.forget("a")
    assert len(queue.pace) == 0
    queue.done("a")
    assert queue.take() == "a"


def test_a_full_purse_is_not_kept(queue: KeyQueue[str], clock: Clock) -> None:
    queue.pace.spent("a", 0.3, now=clock.now)
    assert len(queue.pace) == 1
    clock.now += 2
    queue.add("a")
    assert len(queue.pace) == 0


async def test_get_wakes_for_an_add_and_for_a_wish() -> None:
    queue: KeyQueue[str] = KeyQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await asyncio.wait_for(waiting, 60) == "a"
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("b", 0.01)
    assert await asyncio.wait_for(waiting, 60) == "b"


async def test_many_workers_take_each_key_once() -> None:
    queue: KeyQueue[int] = KeyQueue()
    taken: list[int] = []

    async def worker() -> None:
        while True:
            key = await queue.get()
            taken.append(key)
            await asyncio.sleep(0)
            queue.done(key)

    workers = [asyncio.create_task(worker()) for _ in range(5)]
    for key in range(100):
        queue.add(key)
    async with asyncio.timeout(60):
        while len(taken) < 100:
            await asyncio.sleep(0)
    for task in workers:
        task.cancel()
    assert sorted(taken) == list(range(100))


def test_metrics_hear_of_each_hint_and_of_each_wait(clock: Clock) -> None:
    adds, waits = [], list[float]()
    queue: KeyQueue[str] = KeyQueue(
        clock=clock, on_add=lambda: adds.append(1), on_take=waits.append
    )
    queue.add("a")
    queue.add("a")
    clock.now += 3
    assert queue.take() == "a"
    assert (len(adds), waits) == (2, [3])
