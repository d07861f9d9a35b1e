"""Every reason that a condition, an event, a metric or a message of this project may carry.

One enum, so that a person who reads a word in `kubectl describe` finds the same word in the
metrics, the alerts and the docs. `docs/reasons.md` is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Charge(StrEnum):
    """Whose budget a cause uses."""

    USER = "user"
    INFRASTRUCTURE = "infrastructure"  # free, paced by back-off
    CHECKPOINT = "checkpoint"  # free: the next older save is tried
    INTENT = "intent"  # asked for
    NONE = "none"  # no cause of a restart


@dataclass(frozen=True, slots=True)
class ReasonText:
    """What a reason means and what a person can do."""

    meaning: str
    remedy: str
    charge: Charge = Charge.NONE


class Reason(StrEnum):
    # life of a job
    ACCEPTED = "Accepted"
    PENDING = "Pending"
    STARTING = "Starting"
    PREPARING = "Preparing"
    RESTORING = "Restoring"
    TRAINING = "Training"
    RESTARTING = "Restarting"
    BACKING_OFF = "BackingOff"
    QUEUED = "Queued"
    SCHEDULING_GATED = "SchedulingGated"
    AWAITING_OLDER_WRITER = "AwaitingOlderWriter"
    DRAINING = "Draining"
    SUCCEEDED = "Succeeded"
    SUSPENDED = "Suspended"
    SUSPENDING = "Suspending"
    NOT_SUSPENDED = "NotSuspended"
    STARTED_FROM_SCRATCH = "StartedFromScratch"
    RESUMED = "Resumed"
    RESUMED_LOSS_OUTSIDE = "ResumedLossOutside"
    RESUMED_OTHERWISE = "ResumedOtherwise"
    RESUMED_PARTIALLY = "ResumedPartially"
    NODES_AVOIDED = "NodesAvoided"
    STOP_AGREED = "StopAgreed"
    STOP_MISSED = "StopMissed"
    STOP_TOO_LATE = "StopTooLate"
    LAST_SAVE_COUNTS = "LastSaveCounts"
    SPARE_TOOK_OVER = "SpareTookOver"
    NOT_COMPLETE = "NotComplete"
    NOT_FAILED = "NotFailed"
    NOTHING_DEGRADED = "NothingDegraded"
    CHECKPOINT_DURABLE = "CheckpointDurable"
    NO_CHECKPOINT_YET = "NoCheckpointYet"
    CHECKPOINT_OVERDUE = "CheckpointOverdue"
    # causes of an attempt
    FIRST_START = "FirstStart"
    TRAINER_FAILED = "TrainerFailed"
    TRAINER_SIGNALED = "TrainerSignaled"
    TRAINER_UNHEALTHY = "TrainerUnhealthy"
    OUT_OF_MEMORY = "OutOfMemory"
    EARLY_EXIT = "EarlyExit"
    TRAINING_DIVERGED = "TrainingDiverged"
    TRAINER_HUNG = "TrainerHung"
    TARGET_STEP_NOT_REACHED = "TargetStepNotReached"
    POD_DELETED = "PodDeleted"
    POD_EVICTED = "PodEvicted"
    POD_PREEMPTED = "PodPreempted"
    PREEMPTED_BY_QUEUE = "PreemptedByQueue"
    POD_FAILED = "PodFailed"
    NODE_LEAVING = "NodeLeaving"
    STRAGGLER_REPLACED = "StragglerReplaced"
    NODE_LOST = "NodeLost"
    NODE_NOT_READY = "NodeNotReady"
    SIDECAR_LOST = "SidecarLost"
    DIRECTIVE_NOT_SEEN = "DirectiveNotSeen"
    CANNOT_STOP = "CannotStop"
    RESTORE_FAILED = "RestoreFailed"
    PROBE_FAILED = "ProbeFailed"
    PROBE_NOT_RUN = "ProbeNotRun"
    PREPARE_FAILED = "PrepareFailed"
    PLACEMENT_TIMEOUT = "PlacementTimeout"
    TEMPLATE_CHANGED = "TemplateChanged"
    RESUMED_BY_USER = "ResumedByUser"
    RESTART_REQUESTED = "RestartRequested"
    HOLD_ENDED = "HoldEnded"
    BEGINNING_CHANGED = "BeginningChanged"
    RUN_CONTINUED = "RunContinued"
    RUN_TAKEN_OVER = "RunTakenOver"
    # holds
    NO_VALID_CHECKPOINT = "NoValidCheckpoint"
    RESTART_BUDGET_SPENT = "RestartBudgetSpent"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    DETERMINISTIC_FAILURE = "DeterministicFailure"
    RUN_IN_USE = "RunInUse"
    RUN_ALREADY_COMPLETE = "RunAlreadyComplete"
    RUN_EXISTS = "RunExists"
    RESUME_FROM_UNUSABLE = "ResumeFromUnusable"
    STORE_UNREACHABLE = "StoreUnreachable"
    FINAL_CHECKPOINT_NOT_DURABLE = "FinalCheckpointNotDurable"
    UNSCHEDULABLE = "Unschedulable"
    UNTOLERATED_TAINT = "UntoleratedTaint"
    VOLUME_UNAVAILABLE = "VolumeUnavailable"
    QUEUE_DEACTIVATED = "QueueDeactivated"
    # bad input
    INVALID_SPEC = "InvalidSpec"
    REQUEST_REFUSED = "RequestRefused"
    TRAINER_CONTAINER_AMBIGUOUS = "TrainerContainerAmbiguous"
    COMMAND_MISSING = "CommandMissing"
    PATH_NOT_WRITABLE = "PathNotWritable"
    STORE_SCHEME_UNKNOWN = "StoreSchemeUnknown"
    NAME_TOO_LONG = "NameTooLong"
    POD_REJECTED = "PodRejected"
    QUOTA_EXCEEDED = "QuotaExceeded"
    QUEUE_NOT_SERVED = "QueueNotServed"
    QUEUED_ONE_BY_ONE = "QueuedOneByOne"
    GANG_UNAVAILABLE = "GangUnavailable"
    IMAGE_NOT_PULLABLE = "ImageNotPullable"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    CONTAINER_CRASHING = "ContainerCrashing"
    CREDENTIALS_REFUSED = "CredentialsRefused"
    CREDENTIALS_MISSING = "CredentialsMissing"
    BUCKET_MISSING = "BucketMissing"
    # sidecar
    CHECKPOINT_TORN = "CheckpointTorn"
    CHECKPOINT_CORRUPT = "CheckpointCorrupt"
    CHECKPOINT_NOT_FINITE = "CheckpointNotFinite"
    CHECKPOINT_LOSS_NOT_FINITE = "CheckpointLossNotFinite"
    REQUIRED_KEY_MISSING = "RequiredKeyMissing"
    REQUIRED_KEYS_UNREAD = "RequiredKeysUnread"
    CHECKPOINT_OBJECT_MISSING = "CheckpointObjectMissing"
    CHECKPOINT_IGNORED = "CheckpointIgnored"
    CHECKPOINT_FALLBACK = "CheckpointFallback"
    CHECKPOINT_SUSPECT = "CheckpointSuspect"
    CHECKPOINT_POISON = "CheckpointPoison"
    CHECKPOINT_CLEARED = "CheckpointCleared"
    FOREIGN_CHECKPOINT = "ForeignCheckpoint"
    FRAMEWORK_CHANGED = "FrameworkChanged"
    SAVES_VANISH = "SavesVanish"
    OUTPUT_MISSING = "OutputMissing"
    CHECKPOINT_ORDER_UNKNOWN = "CheckpointOrderUnknown"
    CHECKPOINT_ARCHIVING = "CheckpointArchiving"
    CHECKPOINT_ARCHIVED = "CheckpointArchived"
    ARCHIVE_UNSUPPORTED = "ArchiveUnsupported"
    MARKED_BY_PERSON = "MarkedByPerson"
    RANK_SLOW = "RankSlow"
    SAVES_TOO_RARE = "SavesTooRare"
    SAVES_TOO_OFTEN = "SavesTooOften"
    STORE_TOO_SLOW = "StoreTooSlow"
    UPLOAD_LAGGING = "UploadLagging"
    DISK_FULL = "DiskFull"
    DIRECTORY_READ_ONLY = "DirectoryReadOnly"
    DIRECTORY_MISSING = "DirectoryMissing"
    DIRECTORY_UNREACHABLE = "DirectoryUnreachable"
    FENCE_TAKEN = "FenceTaken"
    SIDECAR_MEMORY_TOO_SMALL = "SidecarMemoryTooSmall"
    LOCAL_SIZE_ABOVE_LIMITS = "LocalSizeAboveLimits"
    RESTORE_TOO_LARGE = "RestoreTooLarge"
    SUPERVISOR_MISSING = "SupervisorMissing"
    WORLD_SIZE_REFUSED = "WorldSizeRefused"
    NEEDS_SHARED_VOLUME = "NeedsSharedVolume"
    INTERNAL_ERROR = "InternalError"
    REPORTS_UNREACHABLE = "ReportsUnreachable"
    PROGRESS_FILE_UNREADABLE = "ProgressFileUnreadable"
    TRAINER_RESTARTS_ITSELF = "TrainerRestartsItself"
    # the run's records
    STORE_UNSUPPORTED = "StoreUnsupported"  # it lacks what the commit protocol stands on
    STORE_WITHOUT_CONDITIONS = "StoreWithoutConditions"
    RUN_DAMAGED = "RunDamaged"  # a record that others rest on cannot be read
