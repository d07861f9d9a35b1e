"""What fits into a termination message, and with which code a container ends."""

from __future__ import annotations

import json

import pytest
from rtj_api.contract import MESSAGE_MAX_BYTES
from rtj_api.wire import Candidate, Problem, Report, SidecarPhase, TrainerState, TrainerView
from rtj_sidecar.lastwords import exit_code, last_words


def report(**fields: object) -> Report:
    given = {"phase": SidecarPhase.EXITED, "attempt": 3, **fields}
    return Report(job_uid="j", pod_uid="p", rank=1, boot_id="b", sequence=7, sent_at=1.0, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", "\x01", '"'])
def test_they_are_never_longer_than_a_kubelet_reads_and_keep_the_end(letter: str) -> None:
    trainer = TrainerView(
        state=TrainerState.EXITED,
        attempt=3,
        exit_code=7,
        ended_at=12.5,
        tail=[letter * 5000] * 100,
        error=letter * 9000,
    )
    problem = Problem(reason="RestoreFailed", message=letter * 9000, since=1.0, ranks=[1])
    candidates = [Candidate(name=f"f1-n{n}", durable=True) for n in range(100)]
    text = last_words(
        report(trainer=trainer, problem=problem, candidates=candidates, listed=True, pinned=["x"])
    )
    assert len(text.encode()) <= MESSAGE_MAX_BYTES
    said = Report.model_validate_json(text)
    assert (said.attempt, said.trainer.exit_code, said.trainer.ended_at) == (3, 7, 12.5)
    assert said.problem is not None
    assert said.problem.reason == "RestoreFailed"
    assert said.listed is None, "without its candidates a listing would read as an empty store"
    assert json.loads(text)["candidates"] == []


@pytest.mark.parametrize(
    ("trainer", "code"),
    [
        ({"exit_code": 0}, 0),
        ({"exit_code": 3}, 3),
        ({"exit_code": 255}, 255),
        ({"exit_code": -9, "signal": 9}, 137),
        ({"exit_code": -15, "signal": 15}, 143),
        ({"exit_code": 0, "asked_to_stop": True}, 143),
        ({"exit_code": None}, 137),
        ({"exit_code": None, "state": TrainerState.NONE}, 1),
    ],
)
def test_the_code_is_the_trainers_own(trainer: dict, code: int) -> None:
    assert exit_code(TrainerView(**{"state": TrainerState.EXITED, **trainer})) == code
