"""`status` of a ResumableTrainingJob: everything the operator remembers of a job.

All memory of a run that the store does not hold is here, so an operator that dies and comes back
goes on as if nothing had happened. Lists are bounded. Times are Unix seconds in Python and
RFC 3339 in JSON. Written only by the operator's guarded status PUT. Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rtj_api.status_attempts import (
    MAX_ATTEMPTS,
    AttemptRecord,
    Budgets,
    Culprit,
    CurrentAttempt,
    Hold,
    Phases,
    RestartKind,
    ResumeDecision,
    WantedBeginning,
)
from rtj_api.status_base import (
    MAX_MESSAGE,
    Message,
    ReasonValue,
    StatusModel,
    Time,
    WholeTime,
    format_time,
    or_else,
    parse_time,
)
from rtj_api.status_elastic import ElasticStatus, PendingGrowth
from rtj_api.status_leaving import MAX_LEFT_NODES, LeftNode, PlannedStop
from rtj_api.status_ledger import IntervalAdvice, TimeBuckets, TimeLedger
from rtj_api.status_trouble import (
    MAX_BISECTED,
    MAX_INCIDENTS,
    MAX_SUSPICIONS,
    Bisection,
    Incident,
    SlowMove,
    SlowRank,
    Straggling,
    Suspicion,
)
from rtj_api.v1alpha1 import MAX_REPLICAS

__all__ = [
    "MAX_ATTEMPTS",
    "MAX_BISECTED",
    "MAX_INCIDENTS",
    "MAX_LEFT_NODES",
    "MAX_MESSAGE",
    "MAX_SUSPICIONS",
    "AttemptRecord",
    "Beginnings",
    "Bisection",
    "Budgets",
    "CheckpointStatus",
    "Condition",
    "ConditionType",
    "Culprit",
    "CurrentAttempt",
    "ElasticStatus",
    "Hold",
    "Incident",
    "IntervalAdvice",
    "JobPhase",
    "LastRequest",
    "LeftNode",
    "Message",
    "PendingGrowth",
    "PendingSuspend",
    "PendingTemplate",
    "Phases",
    "PlannedStop",
    "Progress",
    "ReasonValue",
    "RestartKind",
    "ResumeDecision",
    "ResumeLoss",
    "ResumeReplay",
    "SlowMove",
    "SlowRank",
    "Status",
    "StatusModel",
    "Straggling",
    "Suspicion",
    "Time",
    "TimeBuckets",
    "TimeLedger",
    "WantedBeginning",
    "WholeTime",
    "format_time",
    "parse_time",
]


class Beginnings(StatusModel):
    """What people asked this job to begin from, and what has been done of it."""

    wanted: WantedBeginning | None = Field(None, description="By request, not yet done.")
    acted: list[str] = Field(default_factory=list, max_length=64)
    accepted: bool = Field(False, description="A request let it go on with the existing run.")


class Progress(StatusModel):
    step: int | None = None
    epoch: float | None = None
    loss: float | None = None
    at: Time | None = None


class ResumeLoss(StatusModel):
    """The first losses after the last resume, against those recorded with the save."""

    state: str = Field(description="Within, Outside, or Unknown where the save records none.")
    expected: float | None = None
    noise: float | None = Field(None, description="A standard deviation.")
    seen: float | None = Field(None, description="Absent: not a finite number.")


class ResumeReplay(StatusModel):
    """Steps that were run twice since the last resume, against their first pass."""

    state: str = Field(
        description="Match, Drift, Diverged, Ignored, or NoOverlap where no step was told of twice."
    )
    step: int | None = Field(None, description="The first that differs.")
    lost: str | None = Field(
        None, description="What the trainer did not restore: scheduler or loader.", max_length=16
    )
    message: Message = ""


class CheckpointStatus(StatusModel):
    last_saved_step: int | None = None
    last_saved_time: Time | None = None
    last_durable_step: int | None = None
    last_durable_time: Time | None = None
    last_durable_name: str | None = None
    valid: int = 0
    invalid: int = 0
    pending_saves: int = 0
    resume_quality: str | None = Field(
        None,
        description=(
            "Of the save that the last start began from: Exact, Partial (something of its state is "
            "missing, or the world differs) or WeightsOnly."
        ),
        max_length=16,
    )
    resume_message: Message | None = Field(None, description="What is missing or differs.")
    resume_loss: ResumeLoss | None = None
    resume_replay: ResumeReplay | None = None
    fixed_size: Message | None = Field(
        None,
        description="Of an elastic job: why its newest save cannot be loaded by another number of "
        "ranks. Absent: it can, or that is up to the script.",
    )
    last_verdict_time: Time | None = Field(
        None, description="Bad saves found up to then have been told of in events."
    )


class ConditionType(StrEnum):
    ACCEPTED = "Accepted"
    RUNNING = "Running"
    CHECKPOINT_FRESH = "CheckpointFresh"
    SUSPENDED = "Suspended"
    DEGRADED = "Degraded"
    COMPLETE = "Complete"
    FAILED = "Failed"


class Condition(StatusModel):
    type: ConditionType
    status: str = Field(description="True, False or Unknown.", pattern="^(True|False|Unknown)$")
    reason: ReasonValue
    message: Message = ""
    observed_generation: int = 0
    last_transition_time: WholeTime


def known_conditions(told: Any) -> Any:
    """Those of a newer version are left to it; what is no list of conditions, to pydantic."""
    if not isinstance(told, list):
        return told
    kinds = {str(kind) for kind in ConditionType}
    return [one for one in told if not isinstance(one, dict) or one.get("type") in kinds]


class LastRequest(StatusModel):
    """The newest one-shot wish that was taken up, by its id."""

    id: str
    action: str
    at: Time
    result: Message = ""


class PendingTemplate(StatusModel):
    """A changed template that waits for the next durable checkpoint."""

    hash: str
    since: Time
    durable_step: int | None = None
    durable_name: str | None = None


class PendingSuspend(StatusModel):
    """spec.suspend is true and the next save is waited for."""

    since: Time
    save: str | None = Field(None, description="The newest save when it was asked for.")


class JobPhase(StrEnum):
    """Derived from the rest, for printing only."""

    PENDING = "Pending"
    STARTING = "Starting"
    RESTORING = "Restoring"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    HELD = "Held"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class StandIn(StatusModel):
    """A rank that is played by the pod of a spare. The placement is that of its take-over."""

    rank: int
    spare: int
    made_in: int = Field(description="The attempt in which the spare was made, as in its name.")


class SpareStatus(StatusModel):
    """The pods that wait for a rank."""

    wanted: int
    ready: int = Field(description="They could take a rank at once.")
    message: Message | None = Field(None, description="Why there are not as many as wanted.")


class Status(StatusModel):
    observed_generation: int = 0
    phase: Annotated[JobPhase, or_else(JobPhase, JobPhase.PENDING)] = JobPhase.PENDING
    attempt: int = Field(0, description="Rises with every try to start the gang.")
    starts: int = Field(0, description="Attempts that passed the point of no return.")
    restarts: int = Field(0, description="Of these, automatic ones after a fault.")
    failures: int = Field(0, description="Started attempts that ended in a fault of the job's own.")
    completions: int = Field(0, description="1 once the job is complete.")
    last_start_time: Time | None = None
    resumed_at: Time | None = Field(
        None,
        description="When spec.suspend was last set to false; deadlines count from then, else from "
        "the job's creation.",
    )
    completion_time: Time | None = Field(None, description="When Complete or Failed was recorded.")
    current: CurrentAttempt | None = None
    placements: list[int] = Field(
        default_factory=list, description="By rank: the attempt that its pod is made in."
    )
    stand_ins: list[StandIn] = Field(
        default_factory=list, max_length=MAX_REPLICAS, description="Ranks whose pods were spares."
    )
    spares: SpareStatus | None = Field(
        None,
        description="Pods that wait for a rank: of recovery.spares, and those that an elastic gang "
        "is short of. Absent where none are wanted.",
    )
    elastic: ElasticStatus | None = Field(None, description="Absent without spec.elastic.")
    older_writers: list[int] = Field(
        default_factory=list,
        description=(
            "By rank, where several nodes reach the checkpoint directory: the attempt in which a "
            "pod was made that has trained and is not yet proved ended; 0 where there is none."
        ),
    )
    resume: ResumeDecision | None = None
    hold: Hold | None = None
    held_since: Time | None = Field(None, description="First hold since the last start.")
    allow_scratch: bool = Field(False, description="The next start may be from nothing.")
    ever_durable: bool = Field(False, description="A step of this run was durable once.")
    beginnings: Beginnings = Field(default_factory=Beginnings)
    pending_template: PendingTemplate | None = None
    pending_suspend: PendingSuspend | None = None
    stop: PlannedStop | None = None
    left_nodes: list[LeftNode] = Field(
        default_factory=list,
        max_length=MAX_LEFT_NODES,
        description="Nodes with notice that ranks were moved off, the newest last.",
    )
    budgets: Budgets = Field(default_factory=Budgets)
    bisection: Bisection | None = None
    suspicions: list[Suspicion] = Field(default_factory=list, max_length=MAX_SUSPICIONS)
    straggling: Straggling | None = Field(None, description="Absent while no rank was slow.")
    progress: Progress = Field(default_factory=Progress)
    checkpoint: CheckpointStatus = Field(default_factory=CheckpointStatus)
    ledger: TimeLedger | None = Field(None, description="Absent before the first entry.")
    interval: IntervalAdvice | None = None
    attempts: list[AttemptRecord] = Field(default_factory=list, max_length=MAX_ATTEMPTS)
    conditions: Annotated[list[Condition], BeforeValidator(known_conditions)] = Field(
        default_factory=list, max_length=16
    )
    last_request: LastRequest | None = None
    shown_at: Time | None = Field(None, description="When this status was last written.")

    def dump(self) -> dict[str, Any]:
        """The status as JSON-ready camelCase data, absent optionals left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def condition(self, kind: ConditionType) -> Condition | None:
        return next((c for c in self.conditions if c.type == kind), None)

    def is_true(self, kind: ConditionType) -> bool:
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def is_terminal(self) -> bool:
        """Complete or Failed: nothing is started any more."""
        return self.is_true(ConditionType.COMPLETE) or self.is_true(ConditionType.FAILED)

    @property
    def is_started(self) -> bool:
        """The current attempt passed the point of no return."""
        return self.resume is not None and self.attempt > 0 and self.resume.attempt == self.attempt

    @property
    def asked_stop(self) -> PlannedStop | None:
        """The stop step that trainers of the current attempt may have been told of."""
        stop = self.stop
        if stop is None or stop.step is None or stop.attempt != self.attempt:
            return None
        return stop
