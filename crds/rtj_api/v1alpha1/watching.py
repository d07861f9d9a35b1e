"""`recovery.verifyResume`: what is done about a training that does not go on as before.

Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rtj_api.api_base import Api


class OnDivergence(StrEnum):
    ROLL_BACK = "RollBack"
    HOLD = "Hold"
    REPORT = "Report"


class OnDrift(StrEnum):
    HOLD = "Hold"
    REPORT = "Report"


class VerifyResume(Api):
    """Steps that are run twice around a restart are compared with their first pass, as far as the
    trainer tells of them (RTJ_PROGRESS_FILE, or its log)."""

    on_divergence: OnDivergence = Field(
        OnDivergence.ROLL_BACK,
        description=(
            "The loss is no number any more or exploded, or after a resume it is another training: "
            "RollBack stops it at once and goes on from the newest save before that, at the cost "
            "of a restart; Hold stops it and waits for a person; Report only tells. Of log lines "
            "only a loss that is no number is believed."
        ),
    )
    on_drift: OnDrift = Field(
        OnDrift.REPORT,
        description=(
            "Learning rate or data cursor are not what they were, or the loss lies a little beside "
            "its noise: Report (an event, and Degraded), or Hold, which stops it for a person."
        ),
    )
