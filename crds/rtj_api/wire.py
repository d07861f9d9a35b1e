"""Messages between operator, sidecar, supervisor and peers, as frozen models.

Readers ignore unknown fields and writers only add, so two adjacent versions can serve one gang.
Times are Unix seconds (float), sizes bytes. Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from rtj_api.contract import CONTRACT_VERSION, PORT_STATUS


class Wire(BaseModel):
    """Base of every message: camelCase on the wire, frozen, unknown fields ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )

    def dump(self) -> dict[str, Any]:
        """The message as JSON-ready camelCase data, absent optionals left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def dump_json(self) -> str:
        return self.model_dump_json(by_alias=True, exclude_none=True)


# --- operator -> sidecar ------------------------------------------------------------------------


class Phase(StrEnum):
    """What a directive asks for. The sequence number is a function of the phase: see SEQ."""

    PREPARE = "prepare"  # stop an older trainer, settle, scan; rank 0 claims the fence and lists
    RESTORE = "restore"  # restore exactly `resume`
    GO = "go"  # start the trainer; with `fast`: prepare, restore and go in one
    STOP = "stop"  # stop the trainer with its grace (suspend); save what it saved; report drained
    RELEASE = "release"  # all is over: the supervisor exits 0 with message `released`


SEQ: dict[Phase, int] = {
    Phase.PREPARE: 1,
    Phase.RESTORE: 2,
    Phase.GO: 3,
    Phase.STOP: 4,
    Phase.RELEASE: 5,
}


class Resume(Wire):
    """The save that an attempt starts from; `scratch` when it starts from nothing, by right."""

    scratch: bool = False
    run: str | None = None  # run ID whose history holds the save
    name: str | None = None  # full name within the run: f<fence>-n<n>-s<step>
    step: int | None = None
    durable: bool = True  # False: only in pods, peers serve it
    peers: list[str] = Field(default_factory=list)  # http://ip:port that hold files of it, pinned
    asked: str | None = None  # by whose word it is this one (status.Wanted.asked); None: by rule


class Wanted(Wire):
    """A beginning that a person asked for instead of the newest save."""

    value: str | None = None  # a form of rules.steering; None: a start from nothing
    asked: str  # by whose word; acts once in a run: its records keep it with what came of it


class ThroughStore(Wire):
    """With a GO: the operator hears no reports, so the gang goes on by itself from wherever it is:
    prepare, rank 0's choice, restore and go, agreed on through records in the store. What the
    choice needs of the operator's knowledge comes with it."""

    allow_scratch: bool = False  # step 0 is allowed where no save can be used
    scratch_asked: bool = False  # a person asked for it, once
    ever_durable: bool = False  # some step of this run was durable once
    hold_existing: bool = False  # the first start, and a run that had a life before is not touched


class Probe(Wire):
    """The user's own test of a restored save, see `validation_fields.Probe`."""

    command: list[str]
    timeout_seconds: float = 600


class Directive(Wire):
    """The annotation on a pod. Ignored by a sidecar unless jobUID and podUID are its own and
    (attempt, seq) is above the highest in its journal."""

    version: int = CONTRACT_VERSION
    job_uid: str = Field(alias="jobUID")
    pod_uid: str = Field(alias="podUID")
    rank: int
    attempt: int
    seq: int
    phase: Phase
    world_size: int
    coordinator: str | None = None  # IP of rank 0's pod: rendezvous, and ships from its sidecar
    coordinator_port: int | None = None  # of that sidecar; None: the same as one's own
    rendezvous_port: int | None = None  # None: contract.rendezvous_port of the attempt
    resume: Resume | None = None
    fast: bool = False
    grace_seconds: float | None = None  # for the older trainer; None: SIGKILL at once
    may_claim: bool = False  # the owner of the run's highest fence has ended: claim over it
    claim_over: str | None = None  # that owner, "<clusterUID>/<jobUID>"; None: whoever it is
    wanted: Wanted | None = None  # PREPARE: rank 0 looks for this beginning too, see Report.found
    stop_step: int | None = None
    ending: str | None = None  # STOP: the job is over, "failed" or "released": its fence says so
    replaced: list[int] = Field(default_factory=list)  # PREPARE: ranks with a new, empty pod
    through_store: ThroughStore | None = None
    probe: Probe | None = None  # RESTORE, GO, rank 0: has to pass on `resume` before any trainer
    forget_probes: bool = False  # PREPARE: a person changed something, so every save may try again
    # Put on by whoever writes the annotation; no part of what is asked for.
    push_key: str | None = None  # base64, Ed25519: what it signs is as good as this annotation
    sent_at: float | None = None

    def bare(self) -> Directive:
        """Only what is asked for: two directives that ask for the same are equal."""
        return self.model_copy(update={"push_key": None, "sent_at": None})


class KeepRules(Wire):
    """What of the saves older than the newest `keep_last` is kept; without that all are."""

    every: int | None = None  # steps
    best_metric: str | None = None
    best_highest: bool = False
    best_count: int = 1
    thin: bool = False
    archive_after_seconds: float | None = None
    archive_class: str = "GLACIER"


class SidecarConfig(Wire):
    """Static facts of one pod, in the environment variable RTJ_CONFIG."""

    version: int = CONTRACT_VERSION
    cluster_uid: str = Field(alias="clusterUID")  # UID of kube-system
    job_uid: str = Field(alias="jobUID")
    namespace: str
    job: str
    rank: int
    made_in: int
    image: str | None = None  # these two of the trainer's container: told when they change
    command: list[str] = Field(default_factory=list)
    framework: str
    procs_per_replica: int
    procs_stated: bool = False  # by the user; else it is only the number of GPUs
    run_id: str = Field(alias="runID")
    path: str  # the checkpoint directory, as the trainer and the sidecar see it
    layout: str = "auto"
    include: list[str] = Field(default_factory=list)
    store_url: str | None = None
    store_endpoint: str | None = None
    store_region: str | None = None
    store_ca_file: str | None = None
    store_credentials_dir: str | None = None  # the mounted Secret: it changes, environment cannot
    max_upload_bytes_per_second: int | None = None  # of this pod; None: as fast as it goes
    resume_args: list[str] = Field(default_factory=list)
    on_existing_run: str = "Resume"
    drain_seconds: float = 300
    trainer_grace_seconds: float = 30
    mirror: str = "auto"  # auto | always | never
    keep_last: int | None = None
    keep: KeepRules = Field(default_factory=KeepRules)
    poll_seconds: float = 1.0  # scan of the checkpoint directory
    status_port: int = PORT_STATUS
    shared_directory: bool = False  # all pods of the gang see one checkpoint directory
    fenced_directory: bool = False  # a pod of another node can write there: see DirectoryFence
    keeps_in_directory: bool = False  # no store: records and saves are kept below the directory
    pod_volume: bool = False  # the directory's volume ends with the pod: an emptyDir, an ephemeral
    pod_volume_bytes: int | None = None  # its sizeLimit
    outputs: list[str] = Field(default_factory=list)  # absolute paths, besides the directory's own
    rendezvous_told: bool = False  # this sidecar takes the rendezvous port from its directive
    post_start: list[str] = Field(default_factory=list)  # as for SuperviseConfig
    validation_level: str = "full"  # container | full
    required_keys: list[str] = Field(default_factory=list)  # that a full save must hold


# --- sidecar <-> supervisor, files in RUN_DIR ----------------------------------------------------


class Go(Wire):
    """Start the trainer, once per attempt. `env` is added to the container's own; `$(RTJ_…)` in
    arguments is expanded from it; `extra_args` are appended to the command."""

    attempt: int
    env: dict[str, str]
    extra_args: list[str] = Field(default_factory=list)
    quiet_probes_until_running: bool = True


class Stop(Wire):
    """End the trainer of any attempt up to `attempt`: SIGTERM then SIGKILL after `grace_seconds`;
    None means SIGKILL at once. Everything else in the container's cgroup goes too."""

    attempt: int
    grace_seconds: float | None = None


class Trial(Wire):
    """Run the user's probe on the restored save, once for each `id`, while no trainer runs. It has
    its own session; whatever it leaves running is killed. A Stop of its attempt ends it."""

    id: str
    attempt: int
    command: list[str]
    env: dict[str, str] = Field(default_factory=dict)
    timeout_seconds: float


class Release(Wire):
    """PID 1 of the trainer's container may exit, with `message` as its termination message.

    A code other than 0 passes a failure on to the kubelet, which starts the container again; the
    file is then removed by the supervisor, for it speaks of this one end.
    """

    message: str
    code: int = 0


class SuperviseConfig(Wire):
    """What the supervisor must know before any directive. File supervise.json."""

    path: str  # the checkpoint directory
    trainer_grace_seconds: float
    post_start: list[str] = Field(default_factory=list)  # run after each start, as probe words


class TrainerState(StrEnum):
    NONE = "none"  # this container has started no trainer
    RUNNING = "running"
    EXITED = "exited"


class TrainerView(Wire):
    """The trainer of the last attempt that this pod started."""

    state: TrainerState = TrainerState.NONE
    attempt: int = 0
    pid: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None  # as Python's returncode: negative for a signal
    signal: int | None = None
    oom_kills: int = 0  # processes killed for memory in this container's cgroup, this attempt
    asked_to_stop: bool = False  # a Stop, or a signal forwarded, came before the end
    container_restarted: bool = False  # the container died under the trainer (OOM of the whole)
    unhealthy: str | None = None  # why the supervisor ended it: a liveness probe, a postStart hook
    memory_limit_bytes: int | None = None  # of the container, where the kernel tells
    tail: list[str] = Field(default_factory=list)  # last lines of output, bounded
    error: str | None = None  # torchelastic error file's message, bounded


class TrialView(Wire):
    """How far the last Trial is. It passed where it ended with 0."""

    id: str
    ended: bool = False
    exit_code: int | None = None  # as Python's returncode; None where it never ran or was lost
    timed_out: bool = False
    stopped: bool = False  # by a Stop, or because the pod ends: says nothing of the save
    lost: bool = False  # the container died under it
    not_run: str | None = None  # why its command could not be executed
    oom_kills: int = 0
    tail: list[str] = Field(default_factory=list)  # last lines of output, bounded


class SupervisorState(Wire):
    version: int = CONTRACT_VERSION
    boot_id: str = Field(alias="bootID")
    sequence: int  # rises with each write
    pid: int
    uid: int
    gid: int
    python: str  # its version; empty where a shell supervises, for want of a Python
    term_received_at: float | None = None  # the pod is being ended
    stopped_attempt: int = 0  # no trainer of an attempt up to this runs or will be started
    lingering: int = 0  # processes left by a trainer that ended, which do not die
    trainer: TrainerView = Field(default_factory=TrainerView)
    trial: TrialView | None = None
    # Paths relative to the directory; None: this supervisor cannot say.
    open_for_writing: list[str] | None = Field(default_factory=list)
    written_at: float


# --- on a volume that several nodes reach, file `.rtj/fence` of the checkpoint directory ----------


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


# --- sidecar -> operator --------------------------------------------------------------------------


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
    interval_seconds: float | None = None  # observed between saves


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


class Report(Wire):
    """`GET /status`. A reader drops it when jobUID or podUID is not what it expects."""

    version: int = CONTRACT_VERSION
    job_uid: str = Field(alias="jobUID")
    pod_uid: str = Field(alias="podUID")
    rank: int
    boot_id: str = Field(alias="bootID")
    sequence: int  # rises with each change; the `since` of the long poll
    sent_at: float
    attempt: int = 0  # of the highest directive accepted
    seq: int = 0
    phase: SidecarPhase = SidecarPhase.IDLE
    supervisor_seen: bool = False
    settling: bool = False  # the trainer ended; a newer save may still be found and pinned
    terminating: bool = False
    trainer: TrainerView = Field(default_factory=TrainerView)
    problem: Problem | None = None
    degraded: list[Problem] = Field(default_factory=list)
    lingering: int = 0  # processes left by a trainer that ended, which do not die
    directory: DirectoryFence | None = None  # only from whoever touches a fenced directory
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
    checkpoint: CheckpointView = Field(default_factory=CheckpointView)
    mirror: MirrorView | None = None
    transfers: list[TransferView] = Field(default_factory=list)  # none: nothing is on its way
    verdicts: list[Verdict] = Field(default_factory=list)


# --- the user's one-shot wish, annotation `resumable-training.dev/request` ---------------------


class RequestAction(StrEnum):
    ALLOW_SCRATCH = "allow-scratch"
    RESTART = "restart"
    RESUME_FROM = "resume-from"
    TAKE_OVER = "take-over"


class Request(Wire):
    id: str
    action: RequestAction
    save: str | None = None
