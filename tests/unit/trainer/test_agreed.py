"""The supervisor and a stop step: whose signal waits for it, and for how long."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from kit.supervised import Supervised, python, supervised, wait_for
from rtj_api import contract
from rtj_api.wire import StopStep
from rtj_sidecar.trainer.supervisor_link import write_whole

OBEYS = python(
    "import json, os, signal, sys, time\n"
    "for name in ('SIGTERM', 'SIGUSR1'):\n"
    "    signal.signal(getattr(signal, name), lambda n, _: print('got', n, flush=True))\n"
    "print('ready', flush=True)\n"
    "place, step = os.environ['RTJ_STOP_FILE'], 0\n"
    "while True:\n"
    "    time.sleep(0.05); step += 1\n"
    "    if os.path.exists(place) and step >= json.load(open(place))['step']:\n"
    "        print('stops at', step, flush=True); sys.exit(0)\n"
)


def place(one: Supervised) -> Path:
    return one.link.run / contract.FILE_STOP_WISH


def go(one: Supervised, attempt: int = 1) -> None:
    one.go(attempt, env={"RTJ_STOP_FILE": str(place(one))})
    wait_for(lambda: one.output_text().count("ready") == attempt, why="its trainer")


def tell(one: Supervised, step: int, *, attempt: int = 1, **fields: object) -> None:
    word = StopStep(attempt=attempt, step=step, reason="PodEvicted", **fields)  # type: ignore[arg-type]
    write_whole(place(one), word.dump_json())


def test_a_term_waits_for_the_step_and_the_end_there_is_no_success(tmp_path: Path) -> None:
    with supervised(tmp_path, OBEYS, grace=30, hold_term=5) as one:
        go(one)
        one.terminate()
        one.until(lambda s: s.term_received_at is not None)
        tell(one, 40, until=time.time() + 60)
        trainer = one.until_exited(1).trainer
        assert (trainer.exit_code, trainer.asked_to_stop) == (0, True)
        assert "stops at 40" in one.output_text()
        assert "got" not in one.output_text(), "it ended before any signal"


def test_without_a_word_the_term_comes_after_the_hold(tmp_path: Path) -> None:
    with supervised(tmp_path, OBEYS, grace=6, hold_term=1) as one:
        go(one)
        began = time.monotonic()
        one.terminate()
        wait_for(lambda: f"got {int(signal.SIGTERM)}" in one.output_text())
        assert 0.9 < time.monotonic() - began < 4
        trainer = one.until_exited(1).trainer
        assert trainer.signal == signal.SIGKILL, "the template's grace counts from the first"
        assert time.monotonic() - began < 12


def test_the_hold_is_a_third_of_a_short_grace(tmp_path: Path) -> None:
    with supervised(tmp_path, OBEYS, grace=1.5, hold_term=5) as one:
        go(one)
        began = time.monotonic()
        one.terminate()
        wait_for(lambda: "got" in one.output_text())
        assert time.monotonic() - began < 1.4
        one.until_exited(1)


def test_who_does_not_obey_is_ended_when_the_words_time_is_over(tmp_path: Path) -> None:
    with supervised(tmp_path, OBEYS, grace=1, hold_term=0.3) as one:
        go(one)
        tell(one, 10**9, until=time.time() + 1.5)
        one.until(lambda s: s.trainer.asked_to_stop)
        one.terminate()
        time.sleep(0.8)
        assert "got" not in one.output_text(), "held for longer than the hold: a word is there"
        trainer = one.until_exited(1).trainer
        assert f"got {int(signal.SIGTERM)}" in one.output_text()
        assert trainer.signal == signal.SIGKILL


def test_the_signal_that_the_trainer_prefers_comes_once_behind_the_file(tmp_path: Path) -> None:
    with supervised(tmp_path, OBEYS, hold_term=5) as one:
        go(one)
        tell(one, 10**9, signal=int(signal.SIGUSR1))
        wait_for(lambda: f"got {int(signal.SIGUSR1)}" in one.output_text())
        tell(one, 10**9, signal=int(signal.SIGUSR1))
        tell(one, 10**8, signal=int(signal.SIGTERM))
        time.sleep(0.3)
        assert one.output_text().count("got") == 1


def test_less_time_for_the_same_step_brings_the_signal_sooner(tmp_path: Path) -> None:
    """Its pod's grace is shorter than the time of the others: it would be killed unasked."""
    with supervised(tmp_path, OBEYS, grace=30, hold_term=5) as one:
        go(one)
        tell(one, 10**9, until=time.time() + 600)
        one.until(lambda s: s.trainer.asked_to_stop)
        one.terminate()
        one.until(lambda s: s.term_received_at is not None)
        tell(one, 10**8, until=time.time())
        tell(one, 10**9, until=time.time() + 900)
        time.sleep(0.3)
        assert "got" not in one.output_text(), "another step, and more time, count for nothing"
        tell(one, 10**9, until=time.time() + 0.2)
        wait_for(lambda: f"got {int(signal.SIGTERM)}" in one.output_text())


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_word_for_another_attempt_is_none(tmp_path: Path, attempt: int) -> None:
    with supervised(tmp_path, OBEYS, hold_term=5) as one:
        go(one)
        one.stop(1)
        one.until_exited(1)
        go(one, 2)
        tell(one, 10**9, attempt=attempt, signal=int(signal.SIGUSR1))
        time.sleep(0.3)
        assert "got" not in one.output_text()
        assert not one.state().trainer.asked_to_stop


def test_without_the_users_word_a_term_is_passed_on_at_once(tmp_path: Path) -> None:
    with supervised(tmp_path, OBEYS, grace=5) as one:
        go(one)
        began = time.monotonic()
        one.terminate()
        wait_for(lambda: "got" in one.output_text())
        assert time.monotonic() - began < 1


def test_a_term_long_after_the_words_time_leaves_the_templates_grace(tmp_path: Path) -> None:
    saves = python(
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(1.5); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    with supervised(tmp_path, saves, grace=20, hold_term=5) as one:
        go(one)
        tell(one, 10**9, until=time.time() - 60)  # nobody got there, and it trains on
        one.until(lambda s: s.trainer.asked_to_stop)
        time.sleep(5.2)  # AFTER_SECONDS
        one.terminate()
        trainer = one.until_exited(1).trainer
        assert trainer.exit_code == 0, "killed where it saved"
        assert "saved" in one.output_text()


def test_signals_that_come_again_do_not_put_its_own_off(tmp_path: Path) -> None:
    with supervised(tmp_path, OBEYS, grace=6, hold_term=1) as one:
        go(one)
        began = time.monotonic()
        while "got" not in one.output_text() and time.monotonic() - began < 4:
            one.terminate()
            time.sleep(0.3)
        assert time.monotonic() - began < 3


def test_a_stop_in_the_hold_is_the_only_signal(tmp_path: Path) -> None:
    with supervised(tmp_path, OBEYS, grace=4, hold_term=1) as one:
        go(one)
        one.terminate()
        one.until(lambda s: s.term_received_at is not None)
        one.stop(1, grace=3)
        wait_for(lambda: "got" in one.output_text())
        one.until_exited(1)
        assert one.output_text().count("got") == 1
