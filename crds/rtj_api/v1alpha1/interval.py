"""`checkpoint.interval`: how far apart saves are asked for. Must never do I/O."""

from __future__ import annotations

from pydantic import Field

from rtj_api.api_base import Api

WEEK = 7 * 86_400


class Interval(Api):
    """How far apart saves should be, as trainers are told (RTJ_CHECKPOINT_INTERVAL_SECONDS).

    Nothing set: the time at which saving and lost work cost the least, from what this job has
    lived through. It is advice: a trainer that does not look saves when it will, and status
    compares.
    """

    seconds: float | None = Field(
        None, ge=1, le=WEEK, description="So far apart, whatever is measured."
    )
    mtti_fraction: float | None = Field(
        None,
        ge=0.001,
        le=1,
        description=(
            "This share of the mean time to interruption: 0.1 for 15 minutes where the job is "
            "interrupted every 150."
        ),
    )
    max_seconds: float | None = Field(
        None,
        ge=1,
        le=WEEK,
        description="Never further apart: no more work than this is put at risk.",
    )
