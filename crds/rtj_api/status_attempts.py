"""The part of a job's status that tells of attempts: why one is made, what it starts from, how it
went, and how many the job has left. Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from rtj_api.reasons import Charge
from rtj_api.status_base import Message, ReasonValue, StatusModel, Time, or_else
from rtj_api.status_trouble import MAX_INCIDENTS, MAX_SUSPICIONS, Incident, Suspicion
from rtj_api.v1alpha1 import MAX_REPLICAS

MAX_ATTEMPTS = 10  # records kept in `attempts`


class RestartKind(StrEnum):
    """What a new attempt does to the pods."""

    FIRST = "First"  # all pods are made
    IN_PLACE = "InPlace"  # same pods, local files reused
    REPLACE = "Replace"  # only the lost ranks get new pods
    RECREATE = "Recreate"  # all pods new


# What a newer version may do with pods beside these is least like their going on as they are.
KindOfRestart = Annotated[RestartKind, or_else(RestartKind, RestartKind.RECREATE)]


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
    against_node: float | None = Field(
        None, description="Weight of the mark that it leaves against its node; absent: none."
    )
    gpu: str | None = Field(
        None, max_length=64, description="UUID or PCI address, where its last lines name one."
    )
    message: Message | None = None


class WantedBeginning(StatusModel):
    """A beginning that a person asked for instead of the newest save."""

    value: str | None = Field(None, description="As in resumeFrom; absent: a start from nothing.")
    asked: str = Field(description="By whose word; in a run it acts once.")


class CurrentAttempt(StatusModel):
    """The attempt that is being started or runs: why, how, and when it passed each stage."""

    attempt: int
    kind: KindOfRestart
    cause: ReasonValue
    message: Message = ""
    charge: Annotated[str, or_else(Charge, Charge.INFRASTRUCTURE)] = Field(
        "none", description="Whose budget its start uses, see Charge."
    )
    culprit: Culprit | None = None
    replaced: list[int] = Field(default_factory=list, description="Ranks whose pods are new.")
    group_since: int | None = Field(
        None, description="Attempt in which its pod group entered the queue; absent: no queue."
    )
    admitted_at: Time | None = Field(None, description="The queue had let all its pods go.")
    taken_over: list[int] = Field(
        default_factory=list, description="Of these, the ones that a spare took."
    )
    avoid_nodes: list[str] = Field(
        default_factory=list,
        max_length=48,
        description="Lost nodes that the scheduler may still believe in, and with recovery."
        "avoidNodes: Required those of the node ledger; new pods are not placed there.",
    )
    may_claim: bool = Field(False, description="The run's last holder has ended: claim over it.")
    claim_over: str | None = Field(None, description="That holder: <cluster UID>/<job UID>.")
    wanted: WantedBeginning | None = Field(
        None, description="The beginning that its pods were told to look for."
    )
    varied: str | None = Field(
        None,
        description="What it does otherwise than the one before, to find who is to blame: Node or "
        "Save.",
        max_length=16,
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
    stall_seconds: float | None = Field(
        None, description="For which its steps stood still for saves, of the slowest rank."
    )
    stalls: int | None = Field(None, description="Saves whose stall was measured.")


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
    suspects: list[Suspicion] = Field(
        default_factory=list,
        max_length=MAX_SUSPICIONS,
        description="Saves that were passed over, though their files are whole.",
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
    believed: int = Field(
        0,
        description="Free restarts for what a sign of the trainer's says, or for a pod that ended "
        "by itself: beyond 9 they use the job's budget.",
    )
    progress_step: int | None = Field(None, description="Durable step that refilled the budget.")
    incidents: list[Incident] = Field(
        default_factory=list,
        max_length=MAX_INCIDENTS,
        description="Faults since then, oldest first: what blame is worked out from.",
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
    kind: KindOfRestart
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
