"""A pod's last report, short enough for the termination message of its trainer's container.

Where no report can be had, the kubelet carries this to the API server. Pure. Must never be longer
than what a kubelet reads, nor leave out how the trainer ended.
"""

from __future__ import annotations

from rtj_api.contract import MESSAGE_MAX_BYTES
from rtj_api.wire import Report, TrainerState, TrainerView

TAIL_LINES, LINE_LENGTH, TEXT_LENGTH, WISHES = 5, 200, 600, 2
SIGNALLED, KILLED = 128, 137


def last_words(report: Report) -> str:
    """The report as JSON without what is long, at most MESSAGE_MAX_BYTES of UTF-8."""
    trainer, problem = report.trainer, report.problem
    short = report.model_copy(
        update={
            "candidates": [],
            "listed": None,  # without its candidates a listing would read as an empty store
            "pinned": [],
            "shares": [],
            "acted": report.acted[-WISHES:],
            "found": None,
            "degraded": [],
            "verdicts": [],
            "stall": None,
            "flights": [],
            "trainer": trainer.model_copy(
                update={
                    "tail": [line[-LINE_LENGTH:] for line in trainer.tail[-TAIL_LINES:]],
                    "error": trainer.error[-TEXT_LENGTH:] if trainer.error else None,
                }
            ),
            "problem": problem
            and problem.model_copy(update={"message": problem.message[:TEXT_LENGTH]}),
        }
    )
    text = short.dump_json()
    if len(text.encode()) > MESSAGE_MAX_BYTES:  # many bytes a character
        bare = short.trainer.model_copy(update={"tail": [], "error": None})
        brief = short.problem and short.problem.model_copy(
            update={"message": short.problem.message[:LINE_LENGTH]}
        )
        fields = {"trainer": bare, "problem": brief, "acted": [], "holder": None}
        text = short.model_copy(update=fields).dump_json()
    return text


def exit_code(trainer: TrainerView) -> int:
    """The code with which a container ends that passes its trainer's failure on; 0: it has none."""
    if trainer.signal is not None:
        return SIGNALLED + trainer.signal
    if trainer.exit_code is None:
        # Ended and no code: whoever would have collected it was killed too.
        return KILLED if trainer.state is TrainerState.EXITED else 1
    if trainer.exit_code == 0 and trainer.asked_to_stop:
        return SIGNALLED + 15
    return trainer.exit_code & 0xFF
