"""`checkpoint`: where the trainer saves and what is resumed. Must never do I/O."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from rtj_api import validations as v
from rtj_api.api_base import Api, ShortText
from rtj_api.v1alpha1.base import GlobText, PathText, Quantity
from rtj_api.v1alpha1.interval import Interval
from rtj_api.v1alpha1.store import Retention, Store
from rtj_api.validation_fields import Validation


class LayoutName(StrEnum):
    """How saves lie on disk; each but `auto` is one module of the sidecar's layouts."""

    AUTO = "auto"
    TORCH = "torch"
    DCP = "dcp"
    HF_TRAINER = "hf-trainer"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    LIGHTNING = "lightning"
    MEGATRON = "megatron"
    NEMO = "nemo"
    NVRX_LOCAL = "nvrx-local"
    DLROVER = "dlrover"
    DCP_HF = "dcp-hf"
    COMPOSER = "composer"
    TORCHTUNE = "torchtune"
    FASTAI = "fastai"
    ORBAX = "orbax"
    TF_CHECKPOINT = "tf-checkpoint"
    KERAS = "keras"
    SAFETENSORS = "safetensors"
    GENERIC = "generic"


class OnExistingRun(StrEnum):
    RESUME = "Resume"
    HOLD = "Hold"
    FRESH = "Fresh"


class OnNoValid(StrEnum):
    HOLD = "Hold"
    START_FROM_SCRATCH = "StartFromScratch"


class Mirror(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Medium(StrEnum):
    DISK = "Disk"
    MEMORY = "Memory"


class Local(Api):
    """The copies in the pods, which make most restarts free of any download."""

    medium: Medium = Field(
        Medium.DISK,
        description=(
            "What the emptyDir at checkpoint.path lies on, where no volume is mounted there. "
            "Memory is the fastest, counts against the memory limits of whoever writes it, and "
            "needs size."
        ),
    )
    size: Quantity | None = Field(
        None,
        description=(
            "What that emptyDir may hold, such as 200Gi: beyond it the kubelet evicts the pod. At "
            "70 % the oldest durable saves are removed. On Disk a pod is placed on a node with so "
            "much room. Default: the node's disk."
        ),
        json_schema_extra=v.rules(*v.LOCAL_SIZE),
    )
    keep: int | None = Field(
        None,
        ge=2,
        le=1000,
        description=(
            "Keep so many of the newest durable saves in each pod and remove older ones once they "
            "are durable: the trainer's own only where the volume ends with the pod, on any other "
            "volume what the sidecar holds on to. Default: 2, and the trainer's own are removed "
            "only where the volume fills."
        ),
    )
    max_restore_bytes: Quantity | None = Field(
        None,
        description=(
            "A pod that would have to fetch more bytes than this for a restore fetches nothing, "
            "and the job is held with RestoreTooLarge, such as 500Gi. Default: no limit."
        ),
        json_schema_extra=v.rules(*v.MAX_RESTORE),
    )
    mirror: Mirror = Field(
        Mirror.AUTO,
        description=(
            "Whether a pod keeps saves that other ranks wrote, so that every rank can restart "
            "without the store. auto: where each pod has its own directory and the disk has room."
        ),
    )


class Checkpoint(Api):
    """Where the trainer saves, where saves are kept, and what is resumed."""

    path: PathText = Field(
        description=(
            "Absolute directory the trainer writes its checkpoints to and reads them from. If no "
            "volume is mounted at or above it, each pod gets an emptyDir there. Cannot be changed."
        ),
        json_schema_extra=v.rules(*v.CHECKPOINT_PATH),
    )
    store: Store | None = Field(
        None,
        description=(
            "Where finished saves are kept. May be absent only where path lies on a volume that "
            "all pods share wherever they run: the run is then kept in <path>/.rtj/store, nothing "
            "is copied, and it survives the loss of processes, pods and nodes, not that of the "
            "volume. Cannot be added or removed."
        ),
    )
    layout: LayoutName = Field(
        LayoutName.AUTO,
        description=(
            "How saves lie on disk. auto recognises all but generic, which takes what `include` "
            "names; generic alone takes everything below the path."
        ),
    )
    include: tuple[GlobText, ...] = Field(
        (),
        max_length=64,
        description=(
            "Glob patterns, relative to path, of the files or directories that are saves of a "
            "trainer whose layout is not recognised: model_*.npz, epoch_*/."
        ),
        json_schema_extra=v.rules(*v.INCLUDE),
    )
    run_id: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        None,
        alias="runID",
        description=(
            "Name of the run in the store; one run is one line of saves. A job made anew with the "
            "same runID goes on where the old one stopped. Default: <namespace>/<name>. Cannot be "
            "changed."
        ),
        json_schema_extra=v.rules(*v.RUN_ID),
    )
    on_existing_run: OnExistingRun = Field(
        OnExistingRun.RESUME,
        description=(
            "What a new job does when the store already holds saves of this run. Resume: go on "
            "from the newest valid one; an event lists what differs from the job before. Hold: "
            "start nothing until a request says how. Fresh: begin at step 0; the saves of before "
            "stay and can be named in resumeFrom. A run that another living job holds is never "
            "touched, and one that has finished is held unless Fresh or resumeFrom is given."
        ),
    )
    take_over: Annotated[str, StringConstraints(max_length=128)] | None = Field(
        None,
        description=(
            "UID of the job that holds this run and has certainly ended (as the condition of "
            "RunInUse names it, alone or as <cluster UID>/<job UID>): the run is claimed over it. "
            "If it does live, it can publish nothing any more and is stopped."
        ),
        json_schema_extra=v.rules(*v.TAKE_OVER),
    )
    resume_from: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = Field(
        None,
        description=(
            "Start from this save instead of the newest one: a save of this run by its full name, "
            "also on a branch (f3-n2-s400); another run of this store, its newest valid save or a "
            "named one (team/gpt, team/gpt/f3-n2-s400); the URL of such a run, read with this "
            "store's endpoint and credentials; or checkpoints of another origin, of which the "
            "newest whole one is taken: a directory or file of a volume that the trainer mounts "
            "(/data/old-run), a bucket path (s3://bucket/some/checkpoints), or a manifest.json "
            "there. Acts once for each value in a run, also on a running job; what lay after it "
            "stays as a branch."
        ),
        json_schema_extra=v.rules(*v.RESUME_FROM),
    )
    resume_args: tuple[ShortText, ...] = Field(
        (),
        max_length=32,
        description=(
            "Arguments appended to the trainer's command only when it resumes, such as "
            '["--resume", "$(RTJ_RESUME_CHECKPOINT)"]. Not needed where the trainer finds its own '
            "newest checkpoint. A shell -c command must place $(RTJ_RESUME_ARGS) itself."
        ),
        json_schema_extra=v.rules(*v.RESUME_ARGS),
    )
    validation: Validation = Field(default_factory=Validation)
    on_no_valid: OnNoValid = Field(
        OnNoValid.HOLD,
        description=(
            "What to do when saves exist and none is valid. Hold: stop, say so, start nothing. "
            "StartFromScratch: begin at step 0, after an event, unless a save is only refused as "
            "things stand (archived, another number of processes, a required key)."
        ),
    )
    interval: Interval = Field(default_factory=Interval, json_schema_extra=v.rules(*v.INTERVAL))
    retention: Retention = Field(default_factory=Retention, json_schema_extra=v.rules(*v.RETENTION))
    local: Local = Field(default_factory=Local, json_schema_extra=v.rules(*v.LOCAL))
