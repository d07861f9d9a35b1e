"""Signals: noted by the run that is alive, by nobody's workers, and given back at the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from rtj_trainer import stopping

ASK = signal.SIGUSR1


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (ASK, signal.SIGTERM)}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_second_run_of_a_process_hears_the_signal() -> None:
    first, second = stopping.Signals([ASK]), stopping.Signals([ASK])
    os.kill(os.getpid(), ASK)
    assert (first.asked, second.asked) == ("", "SIGUSR1")
    second.release()
    assert signal.getsignal(ASK) is signal.SIG_DFL


def test_a_finished_run_swallows_no_signal_and_takes_no_other_handler() -> None:
    signals = stopping.Signals([ASK])
    signals.release()
    assert signal.getsignal(ASK) is signal.SIG_DFL
    signals.listen()
    signals.listen()
    os.kill(os.getpid(), ASK)
    assert signals.asked == "SIGUSR1"

    def own(number: int, frame: Any) -> None:
        raise AssertionError

    signal.signal(ASK, own)
    signals.release()
    assert signal.getsignal(ASK) is own
    assert stopping.Signals([ASK]).heard == ()


def test_a_worker_is_deaf_to_what_asks_the_trainer_and_still_calls_the_scripts_own() -> None:
    called: list[int] = []
    stopping.deaf(called.append, [ASK, signal.SIGTERM])(3)
    assert called == [3]
    os.kill(os.getpid(), ASK)
    os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "a loader may end it by a second"
    assert stopping.deaf(None, []) is None
