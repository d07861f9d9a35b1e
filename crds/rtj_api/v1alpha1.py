"""The API `resumable-training.dev/v1alpha1`: what a person writes into a ResumableTrainingJob.

The CRD is generated from these models (`rtj_api.crdgen`), their docstrings and descriptions are
what `kubectl explain` prints, and the operator reads a job through them; so the three cannot
disagree. A rule that the API server can check stands beside its field, with a message that names
the remedy. Must never do I/O, and must never hold a field that nothing reads.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from rtj_api import stores
from rtj_api import template_schema as schema
from rtj_api import validations as v
from rtj_api.api_base import Api, ShortText
from rtj_api.validation_fields import Validation

Quantity = int | str
"""A Kubernetes quantity: `2`, `500m`, `1Gi`."""

PathText = Annotated[str, StringConstraints(min_length=1, max_length=512)]
GlobText = Annotated[str, StringConstraints(min_length=1, max_length=256)]
SecretName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)
]

MAX_REPLICAS = 10_000


class Framework(StrEnum):
    """Which rendezvous environment the trainer gets."""

    PYTORCH = "pytorch"
    JAX = "jax"
    NONE = "none"


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


class BestMode(StrEnum):
    MIN = "min"
    MAX = "max"


class Thin(StrEnum):
    GEOMETRIC = "geometric"
    NONE = "none"


class Mirror(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class ImagePullPolicy(StrEnum):
    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Resources(Api):
    """Compute resources of a container, as in a pod."""

    limits: dict[str, Quantity] = Field(default_factory=dict, max_length=32)
    requests: dict[str, Quantity] = Field(
        default_factory=dict, max_length=32, description="Default: equal to the limits."
    )


class Sidecar(Api):
    """The container that the operator adds to each pod to find, prove, ship and restore saves."""

    image: ShortText | None = Field(
        None, description="Default: the sidecar image of the operator's own release."
    )
    image_pull_policy: ImagePullPolicy | None = Field(
        None, description="Default: the operator's setting, else the kubelet's rule."
    )
    resources: Resources | None = Field(
        None,
        description=(
            "Default: the operator's setting. Requests equal limits unless stated, so that a "
            "Guaranteed pod stays one. With a memory-backed checkpoint directory the limit must "
            "cover that volume too."
        ),
    )
    env: tuple[dict[str, Any], ...] = Field(
        (),
        max_length=64,
        description="Further environment of the sidecar, in a container's form: HTTPS_PROXY, …",
        json_schema_extra=schema.PRESERVED_ITEMS_WITH_NAME,
    )
    env_from: tuple[dict[str, Any], ...] = Field(
        (),
        max_length=16,
        description="Secrets or ConfigMaps whose keys become environment of the sidecar only.",
        json_schema_extra=schema.PRESERVED_ITEMS,
    )
    drain_seconds: int = Field(
        300,
        ge=0,
        le=86_400,
        description=(
            "How long an ending pod may go on shipping finished saves after its trainer ended. "
            "Added to the template's terminationGracePeriodSeconds."
        ),
    )


class CaBundle(Api):
    """Certificates by which a server of one's own is known, PEM, in place of the public ones."""

    config_map: SecretName | None = Field(
        None, description="Name of a ConfigMap in the job's namespace."
    )
    secret: SecretName | None = Field(None, description="Name of a Secret in the job's namespace.")
    key: Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = Field(
        "ca.crt", description="The key that holds the certificates."
    )


class Store(Api):
    """Where finished saves are kept: the truth that outlives every pod and node."""

    url: ShortText = Field(
        description=(
            f"{stores.URL_FORMS}. Saves go below <url>/<runID>. Cannot be changed. See "
            "docs/stores.md."
        ),
        json_schema_extra=v.rules(*v.STORE_URL),
    )
    endpoint: ShortText | None = Field(
        None,
        description=(
            "URL of the store's server: of one that speaks S3, http://s3.storage:8333 (default: "
            "AWS for the region); of another gs:// server; of an Azure account, "
            "https://<account>.blob.core.windows.net; of WebHDFS, http://namenode:9870, several "
            "with ';' between them."
        ),
        json_schema_extra=v.rules(*v.STORE_ENDPOINT),
    )
    region: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        None, description="S3 region. Default: AWS_REGION of the sidecar, else us-east-1."
    )
    ca_bundle: CaBundle | None = Field(
        None,
        description=(
            "Who signed the certificate of an https endpoint, where that is no public authority."
        ),
        json_schema_extra=v.rules(*v.CA_BUNDLE),
    )
    credentials_secret: SecretName | None = Field(
        None,
        description=(
            "Name of a Secret in the job's namespace with, for s3://, AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN if needed); for the others see "
            "docs/stores.md. Only the sidecar gets it. Default: workload identity."
        ),
    )
    max_upload_bytes_per_second: Quantity | None = Field(
        None,
        description=(
            "Bytes a second that each pod's sidecar may send, such as 200M, at least 64Ki: for a "
            "network that the trainer needs for itself. Restores are not slowed down, for the "
            "whole gang waits for them. Default: as fast as it goes."
        ),
        json_schema_extra=v.rules(*v.UPLOAD_RATE),
    )


class KeepBest(Api):
    """Saves that are kept because they are the best by a metric."""

    metric: Annotated[str, StringConstraints(min_length=1, max_length=64)] = Field(
        "loss",
        description=(
            "loss, or a metric that stands in a save's name (val_acc in "
            "epoch=3-val_acc=0.91.ckpt), in lower case."
        ),
    )
    mode: BestMode = Field(BestMode.MIN, description="Whether the lowest or the highest is best.")
    count: int = Field(1, ge=1, le=1000, description="So many of them.")


class Retention(Api):
    """Which saves the store keeps. The one in use, the last valid one, what is pinned and what an
    attempt began from are never removed."""

    keep_last: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description=(
            "Keep this many of the newest verified saves. Default: keep all; without a store, 5."
        ),
    )
    keep_every: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000_000,
        description=(
            "Of the older ones, also keep the first at or after each multiple of so many steps."
        ),
    )
    keep_best: KeepBest | None = Field(
        None, description="Of the older ones, also keep the best by a metric."
    )
    thin: Thin | None = Field(
        None,
        description=(
            "What becomes of the other older ones. geometric: about two are kept for each doubling "
            "of their age, so that good points survive for a roll-back (17 beside the newest 5 of "
            "10,000). none: they go. Default: geometric; without a store, none."
        ),
    )
    archive_after_seconds: float | None = Field(
        None,
        ge=3600,
        le=315_360_000,
        description=(
            "Saves that are kept although they are not among the newest move to archiveClass so "
            "long after they were made. An archived save is not resumed from until the store has "
            "restored it. Default: never."
        ),
    )
    archive_class: Annotated[str, StringConstraints(pattern="^[A-Z0-9_]+$", max_length=64)] = Field(
        "GLACIER",
        description="A storage class of the store, such as STANDARD_IA, GLACIER_IR, DEEP_ARCHIVE.",
    )


class Local(Api):
    """The copies in the pods, which make most restarts free of any download."""

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
    retention: Retention = Field(default_factory=Retention, json_schema_extra=v.rules(*v.RETENTION))
    local: Local = Field(default_factory=Local)


class Backoff(Api):
    """How restarts without durable progress are spaced: doubling from initial to max.

    The first restart after a newly durable save is not delayed.
    """

    initial_seconds: float = Field(1, ge=0, le=3600, description="Delay of the second restart.")
    max_seconds: float = Field(300, ge=0, le=86_400, description="No restart waits longer.")


class Recovery(Api):
    """How often and how fast to restart."""

    max_restarts: int = Field(
        10,
        ge=0,
        le=1_000_000,
        description=(
            "Restarts allowed without durable progress for causes in the job itself. Each newly "
            "durable save refills it. Causes in the infrastructure (a lost node, an eviction, a "
            "preemption) are free. When it is spent the job fails."
        ),
    )
    backoff: Backoff = Field(default_factory=Backoff, json_schema_extra=v.rules(*v.BACKOFF))
    placement_timeout_seconds: float = Field(
        600,
        ge=10,
        le=604_800,
        description=(
            "How long a part of the gang may hold nodes or quota while the other part does not "
            "get to run. Then all pods are given back, so that a smaller job can run, and made "
            "again later. A gang of which no pod has a node goes on waiting."
        ),
    )


class SuspendPolicy(Api):
    """When a running job is stopped once `suspend` is true."""

    checkpoint_timeout_seconds: float = Field(
        60,
        ge=0,
        le=86_400,
        description=(
            "While the gang trains, its next save is waited for at most so long, so that no work "
            "is lost; 0 stops it at once. In any case what was saved is made durable before the "
            "pods go."
        ),
    )


class JobSpec(Api):
    """What to train, on how many pods, and where its checkpoints go."""

    replicas: int = Field(
        1,
        ge=1,
        le=MAX_REPLICAS,
        description="Pods of the gang; rank 0 to replicas-1. Cannot be changed.",
        json_schema_extra=v.rules(*v.REPLICAS),
    )
    framework: Framework = Field(
        Framework.PYTORCH,
        description=(
            "Which rendezvous environment the trainer gets. pytorch: PET_* for torchrun, and "
            "MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK. jax: the coordinator's "
            "address, process count and id. none: nothing."
        ),
    )
    procs_per_replica: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Trainer processes in a pod (torchrun). Default: the pod's GPU limit, else 1.",
    )
    template: dict[str, Any] = Field(
        description=(
            "The pod to run for each rank, a PodTemplateSpec; fields this version does not know "
            "are kept. The trainer is the container named `trainer`, or the only one."
        ),
        json_schema_extra=schema.POD_TEMPLATE,
    )
    sidecar: Sidecar = Field(default_factory=Sidecar)
    checkpoint: Checkpoint = Field(json_schema_extra=v.rules(*v.CHECKPOINT))
    outputs: tuple[PathText, ...] = Field(
        (),
        max_length=16,
        description=(
            "Further absolute files or directories of the trainer that are shipped to "
            "outputs/ in the store when the job succeeds, such as /results. Everything below "
            "checkpoint.path that is no checkpoint is shipped without being named here. Each must "
            "lie on a volume that the trainer mounts."
        ),
        json_schema_extra=v.rules(*v.OUTPUTS),
    )
    recovery: Recovery = Field(default_factory=Recovery)
    suspend: bool = Field(
        False,
        description="Stop training and free the GPUs; false goes on from the newest save.",
    )
    suspend_policy: SuspendPolicy = Field(default_factory=SuspendPolicy)
