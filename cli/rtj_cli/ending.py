"""How `rtj run` leaves a run: its outcome in the fence, and the words and the code at the end.

Must never call a run complete whose last save is not durable.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from rtj_api.reasons import Reason
from rtj_api.wire import Report
from rtj_sidecar.runs.records import Outcome
from rtj_sidecar.station import Station
from rtj_sidecar.stores.base import StoreProblem

from rtj_cli.decisions import End
from rtj_cli.refusals import NOT_DURABLE

OUTCOME_SECONDS = 10


async def set_outcome(at: Station, outcome: Outcome) -> None:
    """Where this run holds its fence and the store answers in time."""
    if at.run is None or at.fence is None:
        return
    with contextlib.suppress(StoreProblem, TimeoutError):
        await asyncio.wait_for(
            asyncio.to_thread(at.run.set_outcome, fence=at.fence, outcome=outcome), OUTCOME_SECONDS
        )


def last_words(
    decision: End, report: Report, *, drained: bool, drain: float, path: Path
) -> tuple[list[str], int]:
    """What is said at the end, and the exit code. `drain`: seconds that were waited."""
    step = report.checkpoint.last_durable_step
    last = "nothing is durable" if step is None else f"the last durable step is {step}"
    said = [f"{decision.why}; {last}"]
    if drained:
        return said, decision.code
    said.append(
        f"{Reason.FINAL_CHECKPOINT_NOT_DURABLE}: {report.checkpoint.pending_saves} saves did not "
        f"reach the store within {drain:g} s; they are in {path} and the next run ships them"
    )
    return said, decision.code or NOT_DURABLE
