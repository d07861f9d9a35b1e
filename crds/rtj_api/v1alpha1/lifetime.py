"""How long a job may take and stay, and what counts as its success.

Fields only; what they do is `rtj_operator.core.deadlines` and `core.successes`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from rtj_api.api_base import Api

MAX_SECONDS = 2_147_483_647
"""The most that Kubernetes takes for such a field of its own."""

DeadlineSeconds = Annotated[int, Field(ge=1, le=MAX_SECONDS)]
LifeSeconds = Annotated[int, Field(ge=0, le=MAX_SECONDS)]
ManagerText = Annotated[str, StringConstraints(min_length=3, max_length=63)]

ACTIVE_DEADLINE = (
    "The job fails when it has been active for so long, counted from its creation, or from when "
    "`suspend` was last set to false; waiting and holds count. Its trainers get their grace and "
    "what they saved is made durable. Default: none."
)
START_DEADLINE = (
    "The job fails when no trainer has been started so long after its creation, or after "
    "`suspend` was last set to false. After the first start it means nothing. Default: none."
)
TIME_TO_LIVE = (
    "The job is deleted so long after it is complete or has failed, as soon as its pods are gone; "
    "what is in the store stays. Default: it stays until somebody deletes it."
)
MANAGED_BY = (
    "Which controller looks after the job. Absent or `resumable-training.dev/operator`: this "
    "operator. Any other: this operator makes no pods of it and writes no status, such as "
    "`kueue.x-k8s.io/multikueue` where the job runs on another cluster. Cannot be changed."
)


class SuccessRanks(StrEnum):
    """Whose trainers have to end with 0."""

    ALL = "All"
    ZERO = "Zero"


class Success(Api):
    """What counts as the job's success."""

    ranks: SuccessRanks = Field(
        SuccessRanks.ALL,
        description=(
            "All: every rank's trainer ends by itself with exit code 0. Zero: rank 0's does; the "
            "others are then ended with their grace, and what they end with counts no more. In "
            "both cases only when the last save and the outputs are durable."
        ),
    )
    target_step: int | None = Field(
        None,
        ge=1,
        description=(
            "Trainers that end with 0 before this step was reached have not succeeded: they are "
            "started again from the newest save, which uses the job's budget unless they made "
            "durable progress. Counted are durable saves, the progress file, and log lines whose "
            "steps have once agreed with a save. It stops no trainer. Default: none."
        ),
    )
