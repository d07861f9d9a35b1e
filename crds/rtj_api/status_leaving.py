"""The part of a job's status about pods and nodes that are about to go.

Times are Unix seconds in Python and RFC 3339 in JSON. Must never do I/O.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rtj_api.reasons import Reason
from rtj_api.status_base import Message, ReasonValue, StatusModel, Time, or_else
from rtj_api.v1alpha1 import MAX_REPLICAS

MAX_LEFT_NODES = 256


class PlannedStop(StatusModel):
    """What was decided for the attempt when a pod of it, or its node, was about to go, or the job
    was to be suspended: one step at which all ranks save and end, or why there is none."""

    attempt: int
    verdict: str = Field(
        description="Agreed, Missed (not all ranks reached it in time), or FinishLast or TooLate: "
        "nothing was asked of the trainers.",
        max_length=16,
    )
    cause: Annotated[ReasonValue, or_else(Reason, Reason.NODE_LEAVING)]
    ranks: list[int] = Field(
        default_factory=list,
        max_length=MAX_REPLICAS,
        description="Whose pods or nodes are leaving.",
    )
    step: int | None = None
    since: Time
    until: Time | None = Field(None, description="When the save has to be finished.")
    message: Message = ""


class LeftNode(StatusModel):
    """A node with notice that a rank was moved off. One that is there again is not moved anew for
    that notice."""

    node: str
    at: Time
