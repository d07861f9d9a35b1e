"""`rules.trials`: one failing probe only makes older saves be tried; two alike blame the probe."""

from __future__ import annotations

import pytest
from rtj_api.reasons import Reason
from rtj_api.rules import trials
from rtj_api.rules.resume import Chosen, NoChoice, choose
from rtj_api.wire import FailedProbe, TrialView

from tests.unit.core.test_choose import facts, save


def refused(step: int, how: str = "exit code 3", **fields: object):
    said = FailedProbe(how=how, message=f"`python check.py`: {how}, last lines: no good")
    return save(step, failed_probe=said, **fields)


OLDER = {
    "the newest failed": (facts(refused(8), save(4)), "s4"),
    "two failed unlike": (facts(refused(8), refused(6, "signal 9"), save(4)), "s4"),
    "a marked one is none that failed": (
        facts(refused(8, invalid="ProbeFailed"), refused(6), save(4)),
        "s4",
    ),
    "an invalid one lies between": (facts(refused(8), save(6, invalid="x"), save(4)), "s4"),
}


@pytest.mark.parametrize("case", OLDER)
def test_the_next_older_save_is_tried(case: str) -> None:
    given, name = OLDER[case]
    found = choose(given)
    assert isinstance(found, Chosen), found
    assert found.resume.name == name
    assert "its probe failed" in found.passed_over[0].why or "invalid" in found.passed_over[0].why


HELD = {
    "two failed alike": (facts(refused(8), refused(6), save(4)), "failed alike on 2 saves"),
    "two of three alike": (
        facts(refused(8), refused(7, "signal 9"), refused(6), save(4)),
        "failed alike",
    ),
    "three failed, each its own way": (
        facts(refused(8), refused(7, "signal 9"), refused(6, "exit code 1"), save(4)),
        "failed on 3 saves",
    ),
    "none is left": (facts(refused(8)), "no older save is left"),
    "none is left, scratch allowed": (facts(refused(8), allow_scratch=True), "no older save"),
    "none is left but an invalid one": (
        facts(refused(8), save(4, invalid="x"), allow_scratch=True),
        "no older save is left",
    ),
    "none is left but weights": (facts(refused(8), save(4, full_state=False)), "no older save"),
}


@pytest.mark.parametrize("case", HELD)
def test_held_with_the_probes_own_words(case: str) -> None:
    given, words = HELD[case]
    found = choose(given)
    assert isinstance(found, NoChoice), found
    assert found.reason == Reason.PROBE_FAILED
    for part in (words, "`python check.py`", "no good", "checkpoint.validation.probe"):
        assert part in found.message


WAYS = {
    "exit code 3": TrialView(id="1", ended=True, exit_code=3),
    "killed by signal 11": TrialView(id="1", ended=True, exit_code=-11),
    "killed by signal 9 (out of memory)": TrialView(id="1", ended=True, exit_code=-9, oom_kills=1),
    "no answer within 5 s": TrialView(id="1", ended=True, exit_code=-9, timed_out=True),
    "the container died under it": TrialView(id="1", ended=True, lost=True),
}


@pytest.mark.parametrize("words", WAYS)
def test_how_it_ended(words: str) -> None:
    assert trials.how_it_ended(WAYS[words], timeout_seconds=5) == words


def test_the_message_is_bounded_and_names_the_command() -> None:
    view = TrialView(id="1", ended=True, exit_code=3, tail=["x" * 5000, "the end"])
    told = trials.message(view, command=["python", "-c", "y" * 9000], how="exit code 3")
    assert told.startswith("`python -c yyy")
    assert told.endswith("the end")
    assert len(told) < 700
    secret = trials.shown(["check", "--token", "hunter2", "--password=hunter2"])
    assert "hunter2" not in secret
    quiet = trials.message(TrialView(id="1", exit_code=1), command=["check"], how="exit code 1")
    assert quiet == "`check`: exit code 1, without a word"
