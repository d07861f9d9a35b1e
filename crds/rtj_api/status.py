"""`status` of a ResumableTrainingJob: everything the operator remembers of a job.

All memory of a run that the store does not hold is here, so an operator that dies and comes back
goes on as if nothing had happened. Lists are bounded. Times are Unix seconds in Python and
RFC 3339 in JSON. Written only by the operator's guarded status PUT. Must never do I/O.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from rtj_api.v1alpha1 import MAX_REPLICAS

MAX_ATTEMPTS = 10  # records kept in `attempts`
MAX_MESSAGE = 1024  # characters of one message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(value: Any) -> Any:
    """RFC 3339 or a number of Unix seconds -> Unix seconds; anything else is left to pydantic."""
    if isinstance(value, str):
        parsed = datetime.fromisoformat(value)
        if parsed.tzinfo is None:
            raise ValueError(f"time without a zone: {value!r}")
        return (parsed - _EPOCH) / timedelta(microseconds=1) / 1e6
    return value


def format_time(value: float) -> str:
    """Unix seconds -> RFC 3339 in UTC; microseconds are shown unless they are zero."""
    moment = _EPOCH + timedelta(microseconds=round(value * 1e6))
    return moment.isoformat().replace("+00:00", "Z")


def _to_micros(value: float) -> float:
    return round(value * 1e6) / 1e6


def _to_seconds(value: float) -> float:
    return float(math.floor(value))


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


_SCHEMA = WithJsonSchema({"type": "string", "format": "date-time"})
_SERIALIZE = PlainSerializer(format_time, return_type=str, when_used="json")
Time = Annotated[
    float, BeforeValidator(parse_time), AfterValidator(_to_micros), _SERIALIZE, _SCHEMA
]
# metav1.Time has whole seconds: what other tools read as a condition's time.
WholeTime = Annotated[
    float, BeforeValidator(parse_time), AfterValidator(_to_seconds), _SERIALIZE, _SCHEMA
]
# A Reason's value. Any string is read, so that a status written by a newer version still loads.
ReasonValue = Annotated[
    str, AfterValidator(str), WithJsonSchema({"type": "string", "maxLength": 64})
]
Message = Annotated[
    str, AfterValidator(_bounded), WithJsonSchema({"type": "string", "maxLength": MAX_MESSAGE})
]


class StatusModel(BaseModel):
    """Base: camelCase in JSON, frozen, unknown fields of a newer version ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )


class RestartKind(StrEnum):
    """What a new attempt does to the pods."""

    FIRST = "First"  # all pods are made
    IN_PLACE = "InPlace"  # same pods, local files reused
    REPLACE = "Replace"  # only the lost ranks get new pods
    RECREATE = "Recreate"  # all pods new


class Culprit(StatusModel):
    """Where the first fault was. The rest of the gang are victims and are not named."""

    rank: int | None = None
    pod: str | None = None
    node: str | None = None
    exit_code: int | None = None  # as the shell sees it: 128 + signal for a signal
    signal: int | None = None
    signature: str | None = Field(
        None, max_length=64, description="What its last lines show, see failures.md."
    )
    message: Message | None = None


class WantedBeginning(StatusModel):
    """A beginning that a person asked for instead of the newest save."""

    value: str | None = Field(None, description="As in resumeFrom; absent: a start from nothing.")
    asked: str = Field(description="By whose word; in a run it acts once.")


class Beginnings(StatusModel):
    """What people asked this job to begin from, and what has been done of it."""

    wanted: WantedBeginning | None = Field(None, description="By request, not yet done.")
    acted: list[str] = Field(default_factory=list, max_length=64)
    accepted: bool = Field(False, description="A request let it go on with the existing run.")


class CurrentAttempt(StatusModel):
    """The attempt that is being started or runs: why, how, and when it passed each stage."""

    attempt: int
    kind: RestartKind
    cause: ReasonValue
    message: Message = ""
    charge: str = Field("none", description="Whose budget its start uses, see Charge.")
    culprit: Culprit | None = None
    replaced: list[int] = Field(default_factory=list, description="Ranks whose pods are new.")
    avoid_nodes: list[str] = Field(
        default_factory=list,
        max_length=16,
        description="Lost nodes that the scheduler may still believe in; new pods keep off them.",
    )
    may_claim: bool = Field(False, description="The run's last holder has ended: claim over it.")
    claim_over: str | None = Field(None, description="That holder: <cluster UID>/<job UID>.")
    wanted: WantedBeginning | None = Field(
        None, description="The beginning that its pods were told to look for."
    )
    through_store: bool = Field(
        False,
        description="Reports cannot be had: the pods agree through the store, and are judged by "
        "what the kubelet says of them.",
    )
    fault_at: Time | None = Field(None, description="When the fault happened, as far as known.")
    detected_at: Time | None = Field(None, description="When the operator heard of it.")
    recorded_at: Time
    not_before: Time | None = Field(None, description="End of the back-off.")
    scheduled_at: Time | None = Field(None, description="All pods were bound to nodes.")
    prepared_at: Time | None = Field(None, description="All ranks had stopped and scanned.")
    restored_at: Time | None = Field(None, description="All ranks held the save.")
    training_at: Time | None = Field(None, description="All trainers had been started.")
    first_step_at: Time | None = Field(None, description="First sign of a new step.")


class ResumeDecision(StatusModel):
    """The save that attempt `attempt` starts from. `attempt` equal to status.attempt is the point
    of no return: the start is counted."""

    attempt: int
    scratch: bool = False
    run: str | None = None
    name: str | None = None
    step: int | None = None
    durable: bool = True
    peers: list[str] = Field(default_factory=list, max_length=MAX_REPLICAS)
    fast: bool = False
    asked: str | None = Field(None, description="By whose word; absent: the newest save.")
    through_store: bool = Field(
        False, description="The pods choose the save themselves; the fence's record names it."
    )
    allow_scratch: bool = Field(
        False, description="With throughStore: they may begin at step 0 if no save can be used."
    )
    scratch_asked: bool = Field(
        False, description="With throughStore: a person asked for that, once."
    )
    ever_durable: bool = Field(
        False, description="With throughStore: some step of this run was durable once."
    )
    at: Time
    reason: Message = ""


class Hold(StatusModel):
    """No attempt may run. `generation` is the spec's at that time: a changed spec ends a hold."""

    reason: ReasonValue
    message: Message
    since: Time
    checked_at: Time | None = None
    retry_at: Time | None = Field(None, description="When it is tried again by itself.")
    generation: int = 0


class Budgets(StatusModel):
    """Restarts since the last durable progress, by who is to blame, and the pace they set."""

    limit: int = 10
    restarts_since_progress: int = Field(0, description="Charged to the user's budget.")
    infrastructure_since_progress: int = Field(0, description="Free, but paced.")
    in_place_failures: int = Field(0, description="In-place starts in a row without progress.")
    uncounted_since_progress: int = Field(
        0, description="Tries that never started a trainer, without progress."
    )
    progress_step: int | None = Field(None, description="Durable step that refilled the budget.")


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
    last_verdict_time: Time | None = Field(
        None, description="Bad saves found up to then have been told of in events."
    )


class TimeBuckets(StatusModel):
    """Seconds of a job's life by what they went to. None of them ever falls."""

    queue: float = Field(0.0, description="Until the pods of a start without a fault were placed.")
    schedule: float = Field(0.0, description="Until the pods were placed again, after a fault.")
    start: float = Field(
        0.0, description="Pods prepare and agree, and trainers until their first step or save."
    )
    restore: float = Field(0.0, description="The chosen save is brought to all ranks.")
    productive: float = Field(0.0, description="Steps made for the first time.")
    checkpoint_stall: float = Field(
        0.0, description="No step was made while a save was written or, at the end, shipped."
    )
    lost: float = Field(
        0.0, description="Steps made again after a restart, and the last, unfinished one before it."
    )
    detect: float = Field(0.0, description="From a fault in training until it was heard of.")
    decide: float = Field(0.0, description="From then until the next attempt was recorded.")
    hold: float = Field(0.0, description="Holds other than a suspension, and back-off.")
    suspended: float = 0.0


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
    stalls: int = Field(0, description="Saves during which no step was made.")
    interruptions: int = Field(0, description="Faults that ended a gang's training.")
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
    actual_seconds: float | None = Field(None, description="Between saves, as observed.")
    recommended_seconds: float
    rule: str = Field(
        description="Daly, or MttiFraction (a tenth of the MTTI) where no stall is known.",
        max_length=16,
    )


class Phases(StatusModel):
    """Seconds from the fault to work, stage by stage; absent stages were not passed or needed."""

    detect: float | None = None
    decide: float | None = None
    back_off: float | None = None
    schedule: float | None = None
    prepare: float | None = None
    restore: float | None = None
    start: float | None = None
    warm_up: float | None = None


class AttemptRecord(StatusModel):
    """One try to start the gang: why it was made, from where to where it came, how it ended."""

    attempt: int
    kind: RestartKind
    cause: ReasonValue
    culprit: Culprit | None = None
    recorded_at: Time
    started: bool = Field(False, description="It passed the point of no return.")
    from_step: int | None = None
    to_step: int | None = None
    lost_steps: int | None = Field(None, description="Steps of the attempt before done again.")
    lost_seconds: float | None = Field(
        None, description="Age of the save it resumed from, at the fault."
    )
    phases: Phases = Field(default_factory=Phases)
    ended_at: Time | None = None
    ended_by: ReasonValue | None = None


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


class Status(StatusModel):
    observed_generation: int = 0
    phase: JobPhase = JobPhase.PENDING
    attempt: int = Field(0, description="Rises with every try to start the gang.")
    starts: int = Field(0, description="Attempts that passed the point of no return.")
    restarts: int = Field(0, description="Of these, automatic ones after a fault.")
    failures: int = Field(0, description="Started attempts that ended in a fault of the job's own.")
    completions: int = Field(0, description="1 once the job is complete.")
    last_start_time: Time | None = None
    completion_time: Time | None = Field(None, description="When Complete or Failed was recorded.")
    current: CurrentAttempt | None = None
    placements: list[int] = Field(
        default_factory=list, description="By rank: the attempt that its pod is made in."
    )
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
    budgets: Budgets = Field(default_factory=Budgets)
    progress: Progress = Field(default_factory=Progress)
    checkpoint: CheckpointStatus = Field(default_factory=CheckpointStatus)
    ledger: TimeLedger | None = Field(None, description="Absent before the first entry.")
    interval: IntervalAdvice | None = None
    attempts: list[AttemptRecord] = Field(default_factory=list, max_length=MAX_ATTEMPTS)
    conditions: list[Condition] = Field(default_factory=list, max_length=16)
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
