"""A word of a later version: what it does not know is left out, and the rest is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from rtj_api.wire import (
    Directive,
    ReplayView,
    Report,
    Request,
    SidecarPhase,
    StallView,
    SupervisorState,
    TrainerState,
)

NEW = "WordOfTheFuture"


def report(**fields: Any) -> dict[str, Any]:
    return {
        "jobUID": "j",
        "podUID": "p",
        "rank": 0,
        "bootID": "b",
        "sequence": 3,
        "sentAt": 1.0,
        "attempt": 7,
        "phase": "Training",
        **fields,
    }


TRANSFER = {"name": "s", "bytesDone": 1, "bytesTotal": 2, "beganAt": 1.0}
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "its phase": ({"phase": NEW}, lambda r: r.phase is SidecarPhase.IDLE),
    "how its trainer stands": (
        {"stall": {"standing": NEW, "since": 1.0}},
        lambda r: r.stall is None and r.phase is SidecarPhase.TRAINING,
    ),
    "what it found of a replay": ({"replay": {"state": NEW}}, lambda r: r.replay is None),
    "what a replay shows to be lost": (
        {"replay": {"state": "Drift", "lost": NEW, "step": 3}},
        lambda r: r.replay == ReplayView(state="Drift", step=3),  # type: ignore[arg-type]
    ),
    "a kind of divergence": (
        {"divergence": {"kind": NEW, "message": "m"}},
        lambda r: r.divergence is None,
    ),
    "one transfer of two": (
        {"transfers": [{"kind": NEW, **TRANSFER}, {"kind": "upload", **TRANSFER}]},
        lambda r: [t.kind.value for t in r.transfers] == ["upload"],
    ),
    "all transfers": (
        {"transfers": [{"kind": NEW, **TRANSFER}, {"kind": NEW, **TRANSFER}]},
        lambda r: r.transfers == [],
    ),
    "its trainer's state": (
        {"trainer": {"state": NEW, "attempt": 7, "exitCode": 3}},
        lambda r: (r.trainer.state, r.trainer.exit_code) == (TrainerState.NONE, 3),
    ),
    "several at once": (
        {"phase": NEW, "replay": {"state": NEW}, "lossCheck": {"state": NEW}},
        lambda r: r.replay is None and r.loss_check is None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_unknown_word_costs_no_more_than_itself(name: str) -> None:
    fields, holds = CASES[name]
    read = Report.model_validate(report(**fields))
    assert read.attempt == 7
    assert holds(read)
    assert Report.model_validate_json(json.dumps(report(**fields))) == read


def test_a_sidecar_reads_a_later_supervisor() -> None:
    told = {"bootID": "b", "sequence": 1, "pid": 1, "uid": 0, "gid": 0, "python": "3"}
    state = SupervisorState.model_validate({**told, "writtenAt": 1.0, "trainer": {"state": NEW}})
    assert state.trainer.state is TrainerState.NONE


@pytest.mark.parametrize(
    "make",
    [
        lambda: Directive.model_validate(
            {
                "jobUID": "j",
                "podUID": "p",
                "rank": 0,
                "attempt": 1,
                "seq": 1,
                "phase": NEW,
                "worldSize": 1,
            }
        ),
        lambda: Request.model_validate({"id": "1", "action": NEW}),
        lambda: StallView.model_validate({"standing": NEW, "since": 1.0}),
        lambda: Report.model_validate(report(rank="x")),
        lambda: Report.model_validate(report(trainer={"attempt": "x"})),
        lambda: Report.model_validate(report(phase=NEW, rank="x")),
    ],
)
def test_what_has_to_be_known_is_still_refused(make: Any) -> None:
    with pytest.raises(ValidationError):
        make()
