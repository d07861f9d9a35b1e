"""Names that cross a border between two parts of the project.

Everything here is a promise: a running pod of an older version reads the same names. Add, never
rename; raise CONTRACT_VERSION when the meaning of a message changes. Must never import anything
but the standard library.
"""

from __future__ import annotations

CONTRACT_VERSION = 1

# --- the API -------------------------------------------------------------------------------
GROUP = "resumable-training.dev"
MANAGER = f"{GROUP}/operator"  # spec.managedBy of a job that is this operator's
VERSION = "v1alpha1"
KIND = "ResumableTrainingJob"
PLURAL = "resumabletrainingjobs"
SINGULAR = "resumabletrainingjob"
SHORT_NAME = "rtj"
API_VERSION = f"{GROUP}/{VERSION}"

# --- labels and annotations on pods --------------------------------------------------------
LABEL_JOB = f"{GROUP}/job"
LABEL_RANK = f"{GROUP}/rank"
LABEL_ROLE = f"{GROUP}/role"
ROLE_RANK = "rank"
ROLE_SPARE = "spare"  # until it has taken a rank
NO_RANK = -1
ANNOTATION_DIRECTIVE = f"{GROUP}/directive"
ANNOTATION_MADE_IN = f"{GROUP}/made-in-attempt"
ANNOTATION_TEMPLATE_HASH = f"{GROUP}/template-hash"
# Its sidecar can agree with its gang through the store, see wire.ThroughStore; older ones cannot.
ANNOTATION_STORE_MODE = f"{GROUP}/store-mode"
# --- on the job: one-shot wishes, JSON {"id": ..., "action": ...}, see wire.Request ----------
ANNOTATION_REQUEST = f"{GROUP}/request"

# --- containers, volumes, ports --------------------------------------------------------------
CONTAINER_TRAINER = "trainer"
CONTAINER_SIDECAR = "rtj-sidecar"
VOLUME_RUN = "rtj-run"
VOLUME_PODINFO = "rtj-podinfo"
VOLUME_CHECKPOINTS = "rtj-checkpoints"
VOLUME_CREDENTIALS = "rtj-credentials"  # the store's Secret, only in the sidecar
VOLUME_CA = "rtj-ca"  # checkpoint.store.caBundle, only in the sidecar
MOUNT_RUN = "/rtj"
MOUNT_PODINFO = "/rtj-podinfo"
MOUNT_CREDENTIALS = "/rtj-credentials"
MOUNT_CA = "/rtj-ca"
FILE_CA = f"{MOUNT_CA}/ca.crt"
PODINFO_DIRECTIVE = f"{MOUNT_PODINFO}/directive"
SUPERVISE = f"{MOUNT_RUN}/bin/supervise"
PORT_STATUS = 9871
PORT_STATUS_NAME = "rtj-metrics"
# The trainer's rendezvous port moves with the attempt, so that a dying older attempt never
# holds the one a newer attempt wants: base + attempt % span.
PORT_RENDEZVOUS_BASE = 29400
PORT_RENDEZVOUS_SPAN = 500

# --- files between sidecar and supervisor, all below MOUNT_RUN/run, written whole and renamed --
RUN_DIR = f"{MOUNT_RUN}/run"
FILE_GO = "go.json"  # sidecar -> supervisor: wire.Go
FILE_TRIAL = "trial.json"  # sidecar -> supervisor: wire.Trial
FILE_LOOK = "look.json"  # sidecar -> supervisor: wire.Look
FILE_STOP = "stop.json"  # sidecar -> supervisor: wire.Stop
FILE_RELEASE = "release.json"  # sidecar -> supervisor: wire.Release
FILE_SUPERVISE_CONFIG = "supervise.json"  # sidecar -> supervisor: wire.SuperviseConfig
FILE_GO_SHELL = "go.sh"  # the same as go.json, for a supervisor that is a shell
FILE_RELEASE_SHELL = "release.sh"  # the same as release.json, written before it
FILE_BEAT = "sidecar.beat"  # sidecar -> supervisor: mtime is the heartbeat
FILE_SUPERVISOR = "supervisor.json"  # supervisor -> sidecar: wire.SupervisorState
FILE_SUPERVISOR_JOURNAL = "supervisor.journal"
FILE_SIDECAR_JOURNAL = "sidecar.journal"
FILE_LOG = "trainer.log"  # bounded tail of the trainer's output; the older half is trainer.log.1

# --- the termination message of a trainer container; exit 0 counts only with RELEASED, or, where
# --- no report can be had, with the pod's last report (JSON of wire.Report) that says Drained ----
MESSAGE_RELEASED = "released"
MESSAGE_ABANDONED = "abandoned"
MESSAGE_MAX_BYTES = 4096  # the kubelet reads no more of a container's termination message

# --- environment: operator -> sidecar ----------------------------------------------------------
ENV_CONFIG = "RTJ_CONFIG"  # JSON of wire.SidecarConfig
ENV_POD_UID = "RTJ_POD_UID"
ENV_POD_NAME = "RTJ_POD_NAME"
ENV_POD_IP = "RTJ_POD_IP"
ENV_NODE_NAME = "RTJ_NODE_NAME"

# --- environment: sidecar -> trainer, set by the supervisor at each start ------------------------
ENV_ATTEMPT = "RTJ_ATTEMPT"
ENV_RANK = "RTJ_RANK"  # whatever the framework: a spare's pod does not know it any earlier
ENV_WORLD_SIZE = "RTJ_WORLD_SIZE"  # pods of the gang
# These three with spec.elastic; the first two where it states globalBatch.
ENV_ACCUMULATION = "RTJ_GRADIENT_ACCUMULATION"  # batches that a process sums up in a step
ENV_GLOBAL_BATCH = "RTJ_GLOBAL_BATCH"  # samples of a step of the whole gang
ENV_LEARNING_RATE_SCALE = "RTJ_LEARNING_RATE_SCALE"  # a factor, 1 at full size
ENV_RESUME_STEP = "RTJ_RESUME_STEP"
ENV_RESUME_CHECKPOINT = "RTJ_RESUME_CHECKPOINT"  # absolute path of the file or directory
ENV_RESUME_ARGS = "RTJ_RESUME_ARGS"
ENV_CHECKPOINT_DIR = "RTJ_CHECKPOINT_DIR"
ENV_PROGRESS_FILE = "RTJ_PROGRESS_FILE"
ENV_STOP_FILE = "RTJ_STOP_FILE"
ENV_CHECKPOINT_INTERVAL = "RTJ_CHECKPOINT_INTERVAL_SECONDS"  # as advised at the start
ENV_CHECKPOINT_INTERVAL_FILE = "RTJ_CHECKPOINT_INTERVAL_FILE"  # its path; rank 0's changes later
FILE_CHECKPOINT_INTERVAL = "checkpoint-interval"  # below MOUNT_RUN/run: seconds, as text
FILE_STOP_WISH = "trainer.stop"  # below MOUNT_RUN/run: wire.StopStep, what RTJ_STOP_FILE names
FILE_PROGRESS = "progress.jsonl"  # below MOUNT_RUN/run
FILE_TRAIL = "trail.json"  # the sidecar's own: what was told of steps in the attempts before

# --- below the checkpoint directory --------------------------------------------------------------
HIDDEN_DIR = ".rtj"
FILE_FENCE = "fence"  # below HIDDEN_DIR: wire.DirectoryOwner
DIRECTORY_STORE = "store"  # below HIDDEN_DIR: the run of a job that has no other store
DIRECTORY_STAGING = "tmp"  # below HIDDEN_DIR: TMPDIR of a trainer that stages saves there
STAGING_LAYOUTS = ("lightning", "nemo")  # values of checkpoint.layout that say so

# --- HTTP of the sidecar, on PORT_STATUS ----------------------------------------------------------
# Long-poll: ?since=V&wait=SECONDS -> wire.Report; &quiet=SECONDS: hold back what is no news.
PATH_STATUS = "/status"
PATH_DIRECTIVE = "/directive"  # POST wire.Directive, signed: see HEADER_SIGNATURE
PATH_METRICS = "/metrics"
PATH_HEALTH = "/healthz"
PATH_SHIPS = "/ships"  # holder: long-poll ?fence=F&since=N&wait=SECONDS -> wire.Ships
PATH_SEEN = "/seen"  # holder: POST wire.Seen
PATH_SAVES = "/saves"  # /saves/<name> -> wire.PeerSave ; /saves/<name>/files/<path> -> bytes

# The job's UID, on every request but for metrics, health and directives: only those know it who may
# read the job or its pods, so nobody else reads a report or a save, or tells the holder of one. As
# the query parameter QUERY_JOB too, for the API server's proxy passes no headers of kubectl on.
HEADER_JOB = "Rtj-Job"
QUERY_JOB = "job"
# Base64 of the Ed25519 signature over SIGNED_PREFIX + body. The key stands in the annotation.
HEADER_SIGNATURE = "Rtj-Signature"
SIGNED_PREFIX = b"rtj-directive-1\0"


def pod_name(*, job: str, rank: int, made_in: int, job_uid: str) -> str:
    """`<job>-<rank>-<attempt it was made in>-<4 hex of the job's UID>`: twice the same is a 409."""
    return f"{job}-{rank}-{made_in}-{job_uid.replace('-', '')[:4]}"


def spare_name(*, job: str, spare: int, made_in: int, job_uid: str) -> str:
    """`<job>-s<k>-<attempt it was made in>-<4 hex>`: kept with whatever rank it takes."""
    return f"{job}-s{spare}-{made_in}-{job_uid.replace('-', '')[:4]}"


def group_name(*, job: str, job_uid: str, since: int | None = None) -> str:
    """The name of the gang's pod group: `<job>-gang-<4 hex>`, or `<job>-g<attempt it began in>-…`
    where a group cannot be used again. No longer than a pod's name of that attempt."""
    middle = "gang" if since is None else f"g{since}"
    return f"{job}-{middle}-{job_uid.replace('-', '')[:4]}"


def sidecar_url(host: str, *, port: int) -> str:
    """Where a sidecar answers; `host` is an IP address of either kind, or a name."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def rendezvous_port(attempt: int) -> int:
    """The trainer's rendezvous port in that attempt, where the pod has an address of its own."""
    return PORT_RENDEZVOUS_BASE + attempt % PORT_RENDEZVOUS_SPAN
