"""What a sidecar reports: to the operator, to its peers, and on a volume that ranks share.

Times are Unix seconds, sizes bytes. Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rtj_api.contract import CONTRACT_VERSION
from rtj_api.wire.base import Wire
from rtj_api.wire.health import DivergenceView, FlightView, ReplayView, StallView
from rtj_api.wire.supervisor import TrainerView


class DirectoryOwner(Wire):
    """Whose attempt may write the directory. Written in prepare by the sidecar that touches it,
    read every few seconds by every sidecar that has it mounted."""

    version: int = CONTRACT_VERSION
    cluster_uid: str = Field(alias="clusterUID")
    job_uid: str = Field(alias="jobUID")
    job: str = ""  # namespace/name, for people
    attempt: int
    released: bool = False  # that job is complete: nobody writes there any more
    written_at: float


class SidecarPhase(StrEnum):
    """How far this sidecar is with `attempt`."""

    IDLE = "Idle"  # no directive yet
    STOPPING = "Stopping"
    PREPARING = "Preparing"
    PREPARED = "Prepared"
    RESTORING = "Restoring"
    RESTORED = "Restored"
    TRAINING = "Training"
    EXITED = "Exited"  # the trainer of this attempt ended
    DRAINING = "Draining"
    DRAINED = "Drained"  # exited or stopped, and nothing here is left that is not durable
    FAILED = "Failed"  # this attempt cannot go on here: see problem


class Problem(Wire):
    """Why something does not go on. `reason` is a rtj_api.reasons.Reason value."""

    reason: str
    message: str  # names the field or file and the remedy
    since: float
    retrying: bool = True
    ranks: list[int] = Field(default_factory=list)  # whose pods are to blame, if not this one


class FailedProbe(Wire):
    """The user's probe failed on a save, and no older one has passed since."""

    how: str  # exit code 3, signal 9, time-out: saves that fail alike are not to blame
    message: str  # with the command and the last lines


class Candidate(Wire):
    """A save of this run that can be reached from the newest fence, newest first."""

    name: str
    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    bytes: int = 0
    durable: bool  # has a manifest
    full_state: bool | None = None
    invalid: str | None = None  # reason of a mark that condemns it
    invalid_message: str | None = None  # names the file or key
    failed_probe: FailedProbe | None = None  # older ones are tried before it
    has: dict[str, bool] = Field(default_factory=dict)  # parts of the state: rules.quality.PARTS
    world_size: int | None = None  # of the gang that saved it
    layout: str | None = None
    needs: list[int] = Field(default_factory=list)  # ranks that wrote files of it
    written_at: float | None = None


class Holder(Wire):
    """Another job that held this run last, as its fence says."""

    owner: str  # "<clusterUID>/<jobUID>"
    namespace: str | None = None
    job: str | None = None
    attempt: int
    fence: int
    claimed_at: float
    outcome: str | None = None  # complete | failed | released; None: it may still write
    changes: list[str] = Field(default_factory=list)  # what this job does otherwise, in words
    person_only: bool = False  # without conditional writes only a person gives the run over

    @property
    def is_released(self) -> bool:
        return self.outcome in ("failed", "released")


class Found(Wire):
    """What rank 0's sidecar found of Directive.wanted."""

    asked: str  # as in the directive
    save: Candidate | None = None  # to resume from; it lies in this run by now
    problem: str | None = None  # why there is none, with the remedy
    # What else was there and newer, or named, and is not it: "name: why", newest first.
    passed_over: list[str] = Field(default_factory=list)


class ProgressView(Wire):
    step: int | None = None
    epoch: float | None = None
    loss: float | None = None
    source: str = "none"  # none | log | file | checkpoint
    confirmed: bool = False  # a step of this source has equalled a checkpoint's, or it is exact
    first_step_at: float | None = None  # first sign of a step in this attempt
    updated_at: float | None = None
    step_seconds: float | None = None  # of its own work, as its progress file tells; a median
    pace_seconds: float | None = None  # between its steps, saves apart; a median

    @property
    def is_sure(self) -> bool:
        """More than a number in a log: it was written to the progress file, or seen in a save."""
        return self.confirmed or self.source in ("file", "checkpoint")


class CheckpointView(Wire):
    last_saved_step: int | None = None
    last_saved_at: float | None = None
    last_durable_step: int | None = None
    last_durable_at: float | None = None
    last_durable_name: str | None = None
    valid: int = 0
    invalid: int = 0
    pending_saves: int = 0  # finished here, not yet durable
    pending_bytes: int = 0
    uploaded_bytes: int = 0
    restored_bytes: int = 0  # fetched for this attempt; 0 when local files were valid
    restore_total_bytes: int = 0
    interval_seconds: float | None = None  # between this attempt's saves, as their files tell
    stall_seconds: float = 0.0  # for which the steps stood still for saves of this attempt
    stalls: int = 0  # those saves
    save_bytes: int | None = None  # of the newest save, this rank's part
    writing_seconds: float | None = None  # from its first file's beginning to its last change
    upload_bytes: int | None = None  # sent for the save that this rank sent last
    upload_seconds: float | None = None


class MirrorView(Wire):
    """The newest durable save as this rank would have to restore it: what of it is here."""

    policy: str  # checkpoint.local.mirror
    name: str | None = None
    is_whole: bool = False  # nothing would have to be fetched
    is_fetching: bool = False
    missing_bytes: int = 0
    fetched_bytes: int = 0  # of the copy that is being made, or was made last
    from_peers: int = 0  # bytes of it
    from_store: int = 0
    why: str | None = None  # it is copied, or not


class TransferKind(StrEnum):
    UPLOAD = "upload"
    RESTORE = "restore"  # to be restored, or to be proved before a choice
    MIRROR = "mirror"  # a save that another rank wrote, kept here for the next restart


class TransferView(Wire):
    """Bytes of a save that are on their way just now."""

    kind: TransferKind
    name: str
    bytes_done: int  # what was there already counts
    bytes_total: int
    bytes_per_second: float | None = None  # of the last seconds; None: not yet known
    eta_seconds: float | None = None
    began_at: float


class Verdict(Wire):
    """A save that was found bad, for events and metrics: each is reported until acknowledged by
    age (kept for the last 20)."""

    name: str
    step: int | None = None
    reason: str
    message: str
    at: float


class TrialState(StrEnum):
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"


class TrialReport(Wire):
    """The user's probe, as far as rank 0's sidecar is with it."""

    name: str  # of the save
    state: TrialState
    since: float  # of this state
    limit_seconds: float


class LossState(StrEnum):
    WITHIN = "Within"
    OUTSIDE = "Outside"
    UNKNOWN = "Unknown"  # the save records no loss


class LossCheck(Wire):
    """The first losses after a resume, against the band that the save records."""

    state: LossState
    expected: float | None = None
    noise: float | None = None  # a standard deviation
    seen: float | None = None  # None: not a finite number
    samples: int = 0


class DirectoryFence(Wire):
    """What the sidecar that touches a fenced directory has written there for an attempt."""

    attempt: int
    settled: bool = False  # so long ago that every sidecar of an older attempt has stopped itself
    followed: str | None = None  # "<clusterUID>/<jobUID>" of another job that held it before


class StandbyView(Wire):
    """A spare that no directive has given a rank yet, and what it has fetched ahead."""

    spare: int
    name: str | None = None  # the save that is here whole, but for what each rank has of its own
    bytes: int = 0  # of it
    whole: bool = False  # no rank has anything of its own in it: to take one moves no byte
    why: str | None = None  # why the newest is not here


class Report(Wire):
    """`GET /status`. A reader drops it when jobUID or podUID is not what it expects."""

    version: int = CONTRACT_VERSION
    job_uid: str = Field(alias="jobUID")
    pod_uid: str = Field(alias="podUID")
    rank: int  # NO_RANK as long as `standby` is there
    boot_id: str = Field(alias="bootID")
    sequence: int  # rises with each change; the `since` of the long poll
    sent_at: float
    attempt: int = 0  # of the highest directive accepted
    seq: int = 0
    phase: SidecarPhase = SidecarPhase.IDLE
    supervisor_seen: bool = False
    settling: bool = False  # the trainer ended; a newer save may still be found and pinned
    terminating: bool = False
    term_received_at: float | None = None  # since when
    can_stop: bool = False  # its trainer obeys a stop step, and its supervisor has a Python
    stop_step: int | None = None  # that its trainer has been told of in this attempt
    trainer: TrainerView = Field(default_factory=TrainerView)
    problem: Problem | None = None
    degraded: list[Problem] = Field(default_factory=list)
    lingering: int = 0  # processes left by a trainer that ended, which do not die
    directory: DirectoryFence | None = None  # only from whoever touches a fenced directory
    standby: StandbyView | None = None  # a spare's, until it has a rank
    # rank 0 only
    fence: int | None = None  # held
    fence_owner: str | None = None  # "<clusterUID>/<jobUID>" of a fence that is not ours
    listed: bool | None = None  # the store answered in this attempt's prepare
    candidates: list[Candidate] = Field(default_factory=list)
    run_complete: bool = False  # the run's newest fence says it finished
    completed_by: str | None = None  # "<clusterUID>/<jobUID>" of that fence
    holder: Holder | None = None  # the newest fence of another job, whatever came of that job
    found: Found | None = None
    trial: TrialReport | None = None
    acted: list[str] = Field(default_factory=list)  # `asked` of beginnings that the run has had
    # every rank
    pinned: list[str] = Field(default_factory=list)  # saves whole and pinned here, own or mirror
    shares: list[str] = Field(default_factory=list)  # saves whose own files of this rank are pinned
    progress: ProgressView = Field(default_factory=ProgressView)
    loss_check: LossCheck | None = None  # of this attempt, once it is known
    replay: ReplayView | None = None  # of this attempt; it may yet get worse
    divergence: DivergenceView | None = None  # of this attempt
    stall: StallView | None = None  # None: it gives signs, or the silence is too young to tell
    flights: list[FlightView] = Field(default_factory=list)  # of this attempt
    checkpoint: CheckpointView = Field(default_factory=CheckpointView)
    mirror: MirrorView | None = None
    transfers: list[TransferView] = Field(default_factory=list)  # none: nothing is on its way
    verdicts: list[Verdict] = Field(default_factory=list)
