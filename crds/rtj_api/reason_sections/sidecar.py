"""Reasons that a sidecar tells: of saves, stores, directories, trainers.

Text only: must never do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtj_api.reasons import Charge, Reason, ReasonText

_SELF_HEALING = "Nothing to do: training goes on by itself from the newest valid checkpoint."

SIDECAR: Final[Mapping[Reason, ReasonText]] = {
    Reason.CHECKPOINT_TORN: ReasonText(
        "A save is incomplete: its writer was stopped in the middle. It is never resumed.",
        _SELF_HEALING,
    ),
    Reason.CHECKPOINT_CORRUPT: ReasonText(
        "The bytes of a save are not those that were written. It is marked and never resumed.",
        f"{_SELF_HEALING} If it recurs, check the disks and the object store.",
    ),
    Reason.CHECKPOINT_NOT_FINITE: ReasonText(
        "A parameter or optimizer tensor of a save holds NaN, and was finite in the save before. "
        "It is kept in the store and never resumed by itself.",
        "The message names the tensor. The run goes back to the save before; look at the learning "
        "rate and at the data of those steps.",
    ),
    Reason.CHECKPOINT_LOSS_NOT_FINITE: ReasonText(
        "The loss that a save states is NaN or infinite, its tensors are not refuted.",
        "Look at the loss curve. With a probe (checkpoint.validation.probe) such a save can be "
        "refused.",
    ),
    Reason.REQUIRED_KEY_MISSING: ReasonText(
        "A full save lacks a key of checkpoint.validation.requiredKeys. It is kept in the store "
        "and not resumed while that key is required.",
        "Make the trainer save it, or correct requiredKeys: then the save counts again.",
        Charge.CHECKPOINT,
    ),
    Reason.REQUIRED_KEYS_UNREAD: ReasonText(
        "checkpoint.validation.requiredKeys could not be checked: the save's names cannot be read "
        "without executing it.",
        "Save in a form that can be read (torch zip, DCP, safetensors), or check the save with "
        "checkpoint.validation.probe.",
    ),
    Reason.CHECKPOINT_OBJECT_MISSING: ReasonText(
        "An object of a save is gone from the store. The save is marked and never resumed.",
        f"{_SELF_HEALING} Look for a life-cycle rule or a person that deletes below the store's "
        "url.",
    ),
    Reason.CHECKPOINT_IGNORED: ReasonText(
        "The trainer did not load the save it was given: it saved a step below it. It is stopped "
        "and its save is refused, so that the good ones stay the newest.",
        "Give the trainer its resume flag: checkpoint.resumeArgs, for example "
        '["--resume", "$(RTJ_RESUME_CHECKPOINT)"].',
        Charge.USER,
    ),
    Reason.CHECKPOINT_FALLBACK: ReasonText(
        "A newer save was not valid, so an older one is resumed.",
        "The event names both. Nothing to do, but find out what damaged the newer one.",
    ),
    Reason.CHECKPOINT_SUSPECT: ReasonText(
        "The trainer failed alike again soon after resuming from a save, or could not read it. An "
        "older save is tried; this one is only passed over, nothing is marked for good.",
        "Nothing to do: the outcome follows as CheckpointPoison or CheckpointCleared.",
    ),
    Reason.CHECKPOINT_POISON: ReasonText(
        "An older save got past the point at which the trainer failed when it resumed from this "
        "one, so this one is bad although its files are whole. It is marked `poison` and not "
        "resumed again.",
        "Find out what put it there (a diverged loss, a bad batch). "
        "`rtj checkpoints mark JOB SAVE good --reason WHY` takes the mark back.",
    ),
    Reason.CHECKPOINT_CLEARED: ReasonText(
        "A suspect save is not suspect any more: an older one failed alike, so the cause lies "
        "elsewhere.",
        "Look at what changed in image, command or data.",
    ),
    Reason.FOREIGN_CHECKPOINT: ReasonText(
        "A save that was in the directory before this job's first start could be taken for its "
        "newest one. It was moved aside, below `.rtj/set-aside`, and is never deleted.",
        "Keep what is not this run's own outside of checkpoint.path.",
    ),
    Reason.FRAMEWORK_CHANGED: ReasonText(
        "The trainer saves with other versions of its libraries than those that wrote the save it "
        "resumed from. The message names both. Nothing is refused because of it.",
        "If the save does not load, or the loss moved, use the image that it was saved with.",
    ),
    Reason.CHECKPOINT_ARCHIVING: ReasonText(
        "A save older than checkpoint.retention.archiveAfterSeconds is on its way to a slower "
        "class of the store.",
        "Nothing to do.",
    ),
    Reason.CHECKPOINT_ARCHIVED: ReasonText(
        "A save lies in an archive of the store and cannot be read now, so it was passed over.",
        "If it is wanted: `rtj checkpoints restore JOB SAVE`, or `aws s3api restore-object` for "
        "each of its objects. Hours later it can be chosen again.",
    ),
    Reason.ARCHIVE_UNSUPPORTED: ReasonText(
        "The store does not have the class that checkpoint.retention.archiveClass names.",
        "Name one that it has, or remove archiveAfterSeconds. Everything else of retention goes "
        "on.",
    ),
    Reason.MARKED_BY_PERSON: ReasonText(
        "A person said so of a save with `rtj checkpoints`: invalid, poison, good or pinned.",
        "`rtj checkpoints show JOB SAVE` tells who and why. `rtj checkpoints mark JOB SAVE good "
        "--reason WHY` takes back what was said against it.",
    ),
    Reason.CHECKPOINT_ORDER_UNKNOWN: ReasonText(
        "The directory of a new run holds saves whose numbers count different things (steps, "
        "epochs), so nobody can tell which is the newest. Nothing is started.",
        "Leave only the save to begin from in checkpoint.path, or none.",
    ),
    Reason.OUTPUT_MISSING: ReasonText(
        "The job succeeded and a path of spec.outputs holds no file.",
        "Correct spec.outputs, or see the trainer's log why it was not written.",
    ),
    Reason.SAVES_VANISH: ReasonText(
        "Finished saves were overwritten or deleted by the trainer before they could be pinned, so "
        "they were never shipped.",
        "Save less often, keep at least two saves, or write each to a name of its own.",
    ),
    Reason.STORE_UNSUPPORTED: ReasonText(
        "The store lacks what the commit of a save stands on: it refuses a request, or gives back "
        "other bytes than were put.",
        "The message names what is missing. Use a store or a version that has it.",
    ),
    Reason.STORE_WITHOUT_CONDITIONS: ReasonText(
        "The store ignores or refuses conditional writes. The run goes on, its fences numbered by "
        "the attempt, and it is given to another job only by a person's word.",
        "Use a store that honours them where you can: docs/stores.md says what is assumed without.",
    ),
    Reason.RUN_DAMAGED: ReasonText(
        "A record of the run that others rest on cannot be read.",
        "The message names the object. Nothing is overwritten: put it back from a version or a "
        "copy, or start another run with another checkpoint.runID.",
    ),
    Reason.RANK_SLOW: ReasonText(
        "A rank's own work in a step takes longer than one and a half times the median of the "
        "ranks, by `step_seconds` of their progress files: all others wait for it.",
        "Look at that pod's node and GPU (clocks, temperature, other programs) and at its share of "
        "the data. recovery.straggler.onSlow: Replace moves it to another node by itself.",
    ),
    Reason.SAVES_TOO_RARE: ReasonText(
        "For how often this job is interrupted, its saves are far apart: more than a twentieth of "
        "its time goes to work that better spaced saves would have kept.",
        "Let the trainer save every `status.interval.recommendedSeconds`, which it finds in "
        "`RTJ_CHECKPOINT_INTERVAL_SECONDS`.",
    ),
    Reason.SAVES_TOO_OFTEN: ReasonText(
        "Saves stop the steps so often that more than a twentieth of the job's time goes to them, "
        "beyond what rarer saves would cost.",
        "Let the trainer save every `status.interval.recommendedSeconds`, or save without "
        "stopping (asynchronously).",
    ),
    Reason.STORE_TOO_SLOW: ReasonText(
        "A save takes longer to become durable than durable saves should be apart, so a lost pod "
        "costs more than it need. The message names the bytes, the time they take and the "
        "bandwidth that is needed.",
        "Give the upload that bandwidth (a nearer store, a higher "
        "`checkpoint.store.maxUploadBytesPerSecond`, more CPU for the sidecar), or save less.",
    ),
    Reason.UPLOAD_LAGGING: ReasonText(
        "Saves are finished faster than they can be shipped.",
        "Save less often, or give the sidecar more CPU or the store more bandwidth.",
    ),
    Reason.DISK_FULL: ReasonText(
        "The volume of the checkpoint directory is full.",
        "Enlarge it, or let the trainer keep fewer checkpoints.",
    ),
    Reason.DIRECTORY_READ_ONLY: ReasonText(
        "The checkpoint directory cannot be written.",
        "Mount it writable for the sidecar too; state runAsUser in the template if the trainer "
        "runs as a special user.",
    ),
    Reason.DIRECTORY_MISSING: ReasonText(
        "The checkpoint directory does not exist in the pod.",
        "Mount a volume at or above checkpoint.path, or let the operator add one by mounting none.",
    ),
    Reason.DIRECTORY_UNREACHABLE: ReasonText(
        "The checkpoint directory lies on a volume that other nodes reach, and it did not answer "
        "for 10 s. A pod that cannot see whether it was replaced stops its trainer.",
        "Check the file server and the network to it; the job goes on by itself when it answers.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.FENCE_TAKEN: ReasonText(
        "A newer attempt, or another job, holds the run; this pod may publish nothing.",
        "Nothing to do for an older pod of the same job. Two jobs must not share a runID.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.SIDECAR_MEMORY_TOO_SMALL: ReasonText(
        "The checkpoint directory lies in memory, which the sidecar's memory limit does not cover.",
        "State emptyDir.sizeLimit, or raise spec.sidecar.resources.limits.memory above it: what is "
        "restored there counts against the sidecar.",
    ),
    Reason.LOCAL_SIZE_ABOVE_LIMITS: ReasonText(
        "The checkpoint directory may hold more than the template's limits (memory, or "
        "ephemeral-storage) let its containers write.",
        "The message names both: raise the limit, or lower the size.",
    ),
    Reason.RESTORE_TOO_LARGE: ReasonText(
        "A pod would have to fetch more bytes than checkpoint.local.maxRestoreBytes for the save "
        "that was chosen. Nothing was fetched, and the job is held.",
        "Raise maxRestoreBytes, or mount a volume at checkpoint.path that outlives the pod, from "
        "which a restart fetches nothing.",
        Charge.USER,
    ),
    Reason.SUPERVISOR_MISSING: ReasonText(
        "The trainer's image has no Python, so a shell supervises it: its output is not read.",
        "Put a python3 (3.8 or newer) into the trainer's image.",
    ),
    Reason.WORLD_SIZE_REFUSED: ReasonText(
        "The framework does not load this save with another number of processes than saved it.",
        "Set spec.replicas (and procsPerReplica) back, or convert the save as the message says. It "
        "counts again by itself when the number is right.",
    ),
    Reason.NEEDS_SHARED_VOLUME: ReasonText(
        "The framework cannot go on from its saves with a disk of its own in each pod: it writes "
        "one directory from all of them, or each pod needs more of a save than its disk holds.",
        "Mount one volume that all pods share (ReadWriteMany, NFS) at checkpoint.path, or give "
        "each pod a larger one where the message names bytes: docs/many-ranks.md.",
    ),
    Reason.INTERNAL_ERROR: ReasonText(
        "A sidecar met an error that nobody foresaw in what it does beside the trainer.",
        "It tries again by itself. If that does not end it, report the message and the sidecar's "
        "log as a defect.",
    ),
    Reason.REPORTS_UNREACHABLE: ReasonText(
        "The operator cannot reach a sidecar that Kubernetes says is running.",
        "Allow TCP to the pods' port 9871 from the operator (NetworkPolicy, service mesh). Until "
        "then the job goes on through the store, more slowly: docs/store-mode.md.",
    ),
    Reason.PROGRESS_FILE_UNREADABLE: ReasonText(
        "A line of the progress file is not a JSON object with a step or a loss.",
        'Write one object a line, e.g. {"step": 120, "loss": 1.7}; other sources are used '
        "meanwhile.",
    ),
    Reason.TRAINER_RESTARTS_ITSELF: ReasonText(
        "The command restarts its workers on its own (torchrun --max-restarts), from a state "
        "nobody checked.",
        "Remove --max-restarts from the command, or set it to 0.",
    ),
}
