"""Why `rtj run` starts nothing, with the exit code that says so.

Must never be silent: each end names its reason and, where there is one, the remedy.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.wire import Found, Report, Resume, Wanted

from rtj_cli.bars import Say

HELD, FAILED, NOT_DURABLE = 75, 70, 74  # as in sysexits.h: try again later, software, I/O


class Ended(Exception):
    """The run is over with this exit code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def failed(report: Report) -> Ended:
    """The end that a sidecar's problem makes; one that a person can mend by taking over is held."""
    problem = report.problem
    reason = problem.reason if problem else "unknown"
    text = problem.message if problem else ""
    if reason not in (Reason.RUN_IN_USE, Reason.RUN_ALREADY_COMPLETE):
        return Ended(FAILED, f"{reason}: {text}")
    return Ended(
        HELD,
        f"{reason}: {text}. If that job has ended, take its run over with --take-over, or start "
        "another run with --run-id",
    )


def asked_for(found: Found | None, *, wanted: Wanted, run_id: str, say: Say) -> tuple[Resume, str]:
    """What was asked for, as it was found and copied into the run. Raises Ended, never another."""
    if found is None or found.save is None:
        problem = found.problem if found is not None else "nothing was found"
        raise Ended(HELD, f"{Reason.RESUME_FROM_UNUSABLE}: {wanted.value}: {problem}")
    for passed in found.passed_over:
        say(f"passed over {passed}")
    save = found.save
    if save.full_state is False:
        raise Ended(
            HELD,
            f"{Reason.RESUME_FROM_UNUSABLE}: {save.name} holds weights only, not the "
            "optimizer's state",
        )
    resume = Resume(
        run=run_id,
        name=save.name,
        step=save.step,
        durable=True,
        asked=wanted.asked,
    )
    return resume, f"asked for: {wanted.value}"
