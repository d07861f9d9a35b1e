"""The part of a job's status that tells where its time went, and what that says of its saves.

Must never do I/O.
"""

from __future__ import annotations

from pydantic import Field

from rtj_api.status_base import StatusModel, Time


class TimeBuckets(StatusModel):
    """Seconds of a job's life by what they went to. None of them ever falls."""

    queue: float = Field(0.0, description="Until the pods of a start without a fault were placed.")
    schedule: float = Field(0.0, description="Until the pods were placed again, after a fault.")
    start: float = Field(
        0.0,
        description="From the pods' placement to the first step or save, without the restore: "
        "images are pulled, sidecars prepare and agree on the save, trainers load and warm up.",
    )
    restore: float = Field(0.0, description="The chosen save is brought to all ranks.")
    productive: float = Field(0.0, description="Steps made for the first time.")
    checkpoint_stall: float = Field(
        0.0,
        description="By what steps were late around saves, as the sidecars measure it; and at the "
        "end, until the last save was durable.",
    )
    lost: float = Field(
        0.0,
        description="Steps made again after a restart, and what came after the last sign of a step "
        "or save before the fault.",
    )
    detect: float = Field(0.0, description="From a fault in training until it was heard of.")
    decide: float = Field(0.0, description="From then until the next attempt was recorded.")
    hold: float = Field(0.0, description="Holds other than a suspension, and back-off.")
    suspended: float = 0.0

    def dump_seconds(self) -> list[tuple[str, float]]:
        """Name and seconds of each, in the order in which a job passes them."""
        return list(self.model_dump(by_alias=True).items())


class TimeLedger(StatusModel):
    """Where the job's time went. The buckets sum exactly to `until` − `since`.

    While the gang trains, `until` is the last step or save that was heard of: of the time after
    it nobody knows yet whether it was work.
    """

    since: Time = Field(
        description="The job's creation; of a job made before there was a ledger, its first entry."
    )
    until: Time = Field(description="Accounted for up to then; never goes back.")
    seconds: TimeBuckets = Field(default_factory=TimeBuckets)
    step: int | None = Field(None, description="Of this attempt, at `until`.")
    reached: int | None = Field(None, description="Furthest step of any attempt.")
    stalls: int = Field(0, description="Saves whose stall was measured.")
    attempt_stalls: int = Field(0, description="Of these, those of this attempt.")
    attempt_stall_seconds: float = Field(0.0, description="Entered for them.")
    unsaved_seconds: float = Field(
        0.0,
        description="Productive time of steps that no durable save holds. If the job fails it is "
        "gone: goodput and ETTR then leave it out, the bucket does not fall.",
    )
    durable_step: int | None = Field(None, description="The save that this was reckoned from.")
    interruptions: int = Field(0, description="Faults that ended a training that made steps.")
    recoveries: int = Field(0, description="Of these, those after which a step was made.")
    recovery_seconds: float = Field(0.0, description="Of all of them: fault to next step.")
    regains: int = Field(0, description="… and after which a new step was made.")
    regain_seconds: float = Field(0.0, description="Of all of them: fault to new ground.")
    down_since: Time | None = Field(None, description="A fault after which no step was made yet.")
    behind_since: Time | None = Field(None, description="… no new step was made yet.")


class IntervalAdvice(StatusModel):
    """How far apart saves are and should be, all in seconds, as of the last write of status."""

    mtti_seconds: float = Field(description="Estimated mean training time to an interruption.")
    stall_seconds: float | None = Field(
        None, description="Mean stall of a save; absent where none was seen."
    )
    durable_latency_seconds: float | None = Field(
        None, description="The newest save whose way could be followed: finished until durable."
    )
    durable_saved_at: Time | None = Field(
        None, description="When the newest durable save was finished: what is older is safe."
    )
    actual_seconds: float | None = Field(
        None, description="Between saves, by when their files were written."
    )
    recommended_seconds: float = Field(
        description="At which saving and lost work cost the least together."
    )
    rule: str = Field(
        description="How publishedSeconds is found: Exact (the optimum of the measured stall), "
        "MttiFraction (a share of the MTTI: asked for, or a tenth where no stall is known) or "
        "Fixed.",
        max_length=16,
    )
    published_seconds: float | None = Field(
        None,
        description="What rank 0's trainer is told. It follows what is found only once that "
        "differs by more than a fifth.",
    )
    durable_seconds: float | None = Field(
        None,
        description="How far apart durable saves should be: for the faults that lose the copies "
        "in the pods, and no less than a save takes to become durable.",
    )
    local_loss_share: float | None = Field(
        None, description="Estimated share of the faults that lose the copies in the pods."
    )
    writing_seconds: float | None = Field(None, description="Of the newest save, slowest rank.")
    save_bytes: int | None = Field(None, description="Of the newest save, all ranks together.")
    upload_bytes_per_second: float | None = Field(
        None, description="Of the newest save that was sent, all ranks together."
    )
