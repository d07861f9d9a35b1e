"""What the operator tells a sidecar, and what a person asks of the operator.

Times are Unix seconds, sizes bytes. Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rtj_api.contract import CONTRACT_VERSION, PORT_STATUS
from rtj_api.wire.base import Wire
from rtj_api.wire.health import VerifyResume


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
    rank_zero_decides: bool = False  # rank 0's end with 0 completes the run
    target_step: int | None = None  # an end before it does not


class Probe(Wire):
    """The user's own test of a restored save, see `validation_fields.Probe`."""

    command: list[str]
    timeout_seconds: float = 600


class Suspect(Wire):
    """A save that the attempt passes over, though its files are whole."""

    name: str
    past_step: int | None = None  # an older save that gets past it proves this one bad; None: any
    is_proved: bool = False  # one has
    why: str = ""


class Batches(Wire):
    """The arithmetic of an elastic gang at the size of this attempt; see rules.elastic."""

    accumulation: int | None = None
    global_batch: int | None = None
    learning_rate_scale: float = 1.0


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
    # GO: the step at which every rank saves and ends. Alone it makes no new directive, and it is
    # never another within an attempt.
    stop_step: int | None = None
    stop_reason: str | None = None  # why, a Reason
    stop_within: float | None = None  # seconds that the trainer of an ending pod may go on
    batches: Batches | None = None  # GO: for the trainer of an elastic gang
    ending: str | None = None  # STOP: the job is over, "failed" or "released": its fence says so
    replaced: list[int] = Field(default_factory=list)  # PREPARE: ranks with a new, empty pod
    through_store: ThroughStore | None = None
    probe: Probe | None = None  # RESTORE, GO, rank 0: has to pass on `resume` before any trainer
    forget_probes: bool = False  # PREPARE: a person changed something, so every save may try again
    suspects: list[Suspect] = Field(default_factory=list)  # GO, rank 0: marks them in the store
    # Seconds between saves, for the trainer. Alone it makes no new directive: the same one with
    # another figure is taken up at any time after the go.
    interval_seconds: float | None = None
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
    rank: int  # NO_RANK in a spare
    spare: int | None = None  # its number: the first directive that it accepts gives it its rank
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
    hang_timeout_seconds: float | None = None  # a person's own; None: from the trainer's pace
    restarts_hung: bool = True  # False: a hang is only told
    stack_signal: int | None = None  # for which the trainer has registered a dump of its stacks
    obeys_stop: bool = False  # the trainer looks at RTJ_STOP_FILE: recovery.stop.by
    stop_signal: int | None = None  # … when it is sent this one
    verify_resume: VerifyResume = Field(default_factory=VerifyResume)
    mirror: str = "auto"  # auto | always | never
    keep_local: int | None = None  # newest durable saves that stay in the pod; None: at least 2
    max_restore_bytes: int | None = None  # that a restore may fetch; None: any number
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


class RequestAction(StrEnum):
    ALLOW_SCRATCH = "allow-scratch"
    RESTART = "restart"
    RESUME_FROM = "resume-from"
    TAKE_OVER = "take-over"
    BISECT = "bisect"


class Request(Wire):
    id: str
    action: RequestAction
    save: str | None = None
