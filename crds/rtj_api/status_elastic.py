"""The part of a job's status that tells how many pods an elastic gang trains with, and why.

Must never do I/O.
"""

from __future__ import annotations

from pydantic import Field

from rtj_api.status_base import Message, ReasonValue, StatusModel, Time


class PendingGrowth(StatusModel):
    """There is room again, and a save is awaited at which the gang can grow."""

    size: int
    since: Time
    save: str | None = Field(None, description="The newest durable save when it was recorded.")


class ElasticStatus(StatusModel):
    """The size of the gang, recorded before its pods are made or ended."""

    size: int = Field(description="Pods of the gang.")
    wanted: int = Field(description="spec.replicas.")
    since: Time
    reason: ReasonValue
    message: Message = Field("", description="Why it is not the wanted size.")
    gradient_accumulation: int | None = Field(
        None, description="Batches that each process sums up in a step; absent without globalBatch."
    )
    global_batch: int | None = None
    learning_rate_scale: float = 1.0
    growing: PendingGrowth | None = None
    unproved: int | None = Field(
        None,
        description="The attempt in which it grew, until the larger gang has made a durable save.",
    )
    failed_growths: int = Field(
        0, description="Growths in a row that were undone before any save was durable."
    )
    not_before: Time | None = Field(None, description="It does not grow sooner.")
