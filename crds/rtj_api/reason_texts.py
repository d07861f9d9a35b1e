"""What each reason means, what a person can do, and whose budget it uses.

The one table behind `docs/reasons.md`, the events and the restart budget. Every Reason has
exactly one row; a test fails where one is missing. Must never do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rtj_api.reasons import Charge, Reason, ReasonText

_NOTHING = "Nothing to do."
_SELF_HEALING = "Nothing to do: training goes on by itself from the newest valid checkpoint."

_LIFE: Final[Mapping[Reason, ReasonText]] = {
    Reason.ACCEPTED: ReasonText("The spec can be run as it is.", _NOTHING),
    Reason.PENDING: ReasonText(
        "The job was seen; no attempt has been recorded yet.",
        "Wait a moment. If it stays, look whether the operator runs.",
    ),
    Reason.STARTING: ReasonText(
        "Pods of the attempt are being made, scheduled or pulled.",
        "If it stays, `kubectl describe pod` says what a pod waits for.",
    ),
    Reason.PREPARING: ReasonText(
        "Sidecars stop an older trainer, let its writes settle, and look for checkpoints.",
        _NOTHING,
    ),
    Reason.RESTORING: ReasonText(
        "Every rank gets the files of the chosen save. No trainer runs until all have them.",
        "If it takes long, the sidecar's metrics show how many bytes have come.",
    ),
    Reason.TRAINING: ReasonText("All trainers of the attempt were started.", _NOTHING),
    Reason.RESTARTING: ReasonText(
        "A fault was found, its cause recorded, and the gang is being started again.",
        "The newest entry of status.attempts names the cause and the rank.",
    ),
    Reason.BACKING_OFF: ReasonText(
        "The next attempt waits, because the last ones ended without durable progress.",
        "Look at the cause in status.attempts. spec.recovery.backoff sets the pace.",
    ),
    Reason.AWAITING_OLDER_WRITER: ReasonText(
        "A pod of an older attempt may still write to the checkpoint directory, which several "
        "nodes can reach: nothing is chosen or restored there before it is proved ended.",
        "Nothing to do: 20 s after rank 0 wrote the attempt to <path>/.rtj/fence every older "
        "sidecar has stopped its trainer. A volume that only one node may hold is given to the "
        "new pod only when the lost node is gone: delete the Node, or taint it with "
        "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute once it is off.",
    ),
    Reason.DRAINING: ReasonText(
        "Training ended; the last saves are being shipped before the pods go.", _NOTHING
    ),
    Reason.SUCCEEDED: ReasonText("All ranks ended well and their last save is durable.", _NOTHING),
    Reason.SUSPENDED: ReasonText(
        "spec.suspend is true; no pod is left.", "Set spec.suspend to false to go on."
    ),
    Reason.SUSPENDING: ReasonText(
        "spec.suspend is true; trainers are being stopped and their saves shipped.", _NOTHING
    ),
    Reason.NOT_SUSPENDED: ReasonText("spec.suspend is false.", _NOTHING),
    Reason.NOT_COMPLETE: ReasonText("The job has not ended well so far.", _NOTHING),
    Reason.NOT_FAILED: ReasonText("The job has not been given up.", _NOTHING),
    Reason.STARTED_FROM_SCRATCH: ReasonText(
        "The attempt starts at step 0, because the run has no save, or because that was allowed.",
        "If the run should have had saves, check checkpoint.runID and checkpoint.store.url.",
    ),
    Reason.RESUMED: ReasonText("The attempt starts from the save that the event names.", _NOTHING),
    Reason.NOTHING_DEGRADED: ReasonText("Everything works as it was meant to.", _NOTHING),
    Reason.CHECKPOINT_DURABLE: ReasonText(
        "The store holds a whole, valid save of this run.", _NOTHING
    ),
    Reason.NO_CHECKPOINT_YET: ReasonText(
        "The store holds no save of this run so far; a fault now would start at step 0.",
        "If the trainer has saved already, check that it writes below checkpoint.path, and "
        "checkpoint.layout and include.",
    ),
    Reason.CHECKPOINT_OVERDUE: ReasonText(
        "The newest durable save is much older than the observed interval between saves.",
        "See whether the trainer still saves, and UploadLagging or StoreUnreachable in Degraded.",
    ),
}

_CAUSES: Final[Mapping[Reason, ReasonText]] = {
    Reason.FIRST_START: ReasonText("The first attempt of the job.", _NOTHING, Charge.INTENT),
    Reason.TRAINER_FAILED: ReasonText(
        "A trainer ended with an exit code other than 0.",
        "The culprit's message holds its last lines; `kubectl logs <pod> -c trainer` has more.",
        Charge.USER,
    ),
    Reason.TRAINER_SIGNALED: ReasonText(
        "A trainer was ended by a signal that nobody here sent (a crash, or kill).",
        "SIGSEGV and SIGABRT are faults of the program or its libraries; for SIGKILL look for "
        "memory limits on the node.",
        Charge.USER,
    ),
    Reason.TRAINER_UNHEALTHY: ReasonText(
        "The trainer's own liveness probe or postStart hook failed; the supervisor ended it as the "
        "kubelet would have ended its container.",
        "The message says what was asked and answered. Correct the trainer, or the probe in "
        "spec.template.",
        Charge.USER,
    ),
    Reason.OUT_OF_MEMORY: ReasonText(
        "The kernel killed the trainer, a process that it had started, or its whole container, at "
        "the container's memory limit; or it killed the sidecar.",
        "Raise resources.limits.memory of what the message names, or lower its use (batch size, "
        "data loader workers).",
        Charge.USER,
    ),
    Reason.EARLY_EXIT: ReasonText(
        "A rank ended with exit code 0 while the others did not.",
        "All ranks must end together: look why that rank had no work left.",
        Charge.USER,
    ),
    Reason.POD_DELETED: ReasonText(
        "A pod was deleted by someone else than the operator.", _SELF_HEALING, Charge.INFRASTRUCTURE
    ),
    Reason.POD_EVICTED: ReasonText(
        "A pod was evicted: a drain, or pressure on its node.",
        f"{_SELF_HEALING} If nodes lack memory or disk, state requests that match the use.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.POD_PREEMPTED: ReasonText(
        "A pod was ended in favour of one of higher priority.",
        f"{_SELF_HEALING} A higher priorityClassName in the template prevents it.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.POD_FAILED: ReasonText(
        "A pod ended without its trainer being the cause.",
        "`kubectl describe pod` and the event's message say what the kubelet reported.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.NODE_LOST: ReasonText(
        "A node is gone, or is silent in every way that could be asked.",
        f"{_SELF_HEALING} Repair or remove the node.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.NODE_NOT_READY: ReasonText(
        "Kubernetes says that a node with a rank of this job is not ready.",
        f"{_SELF_HEALING} Repair or remove the node.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.SIDECAR_LOST: ReasonText(
        "A pod's sidecar does not come back.",
        "`kubectl logs <pod> -c rtj-sidecar --previous` says why; raise sidecar.resources if it "
        "ran out of memory.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.DIRECTIVE_NOT_SEEN: ReasonText(
        "A pod did not take up what the operator asked of it in time.",
        "The pod is replaced. If it recurs on one node, look at that node's kubelet.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.CANNOT_STOP: ReasonText(
        "A trainer could not be stopped, not even by SIGKILL (usually stuck in a driver or NFS).",
        "The pod is replaced. Look at that node's GPU driver and mounts.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.RESTORE_FAILED: ReasonText(
        "The chosen save could not be restored on a rank. No trainer had started.",
        "The message names the file. A bad save is marked and the next older one is tried.",
        Charge.CHECKPOINT,
    ),
    Reason.PLACEMENT_TIMEOUT: ReasonText(
        "Not all ranks found a node in time, so all pods are given back and tried again later; "
        "two half-placed gangs would wait for each other for ever.",
        "`kubectl describe pod` lists what is missing. It is tried again by itself.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.PREPARE_FAILED: ReasonText(
        "A rank could not be made ready. No trainer had started.",
        "The message says what failed; it is tried again.",
        Charge.CHECKPOINT,
    ),
    Reason.TEMPLATE_CHANGED: ReasonText(
        "The template was changed and now applies.", _NOTHING, Charge.INTENT
    ),
    Reason.RESUMED_BY_USER: ReasonText(
        "spec.suspend went from true to false.", _NOTHING, Charge.INTENT
    ),
    Reason.RESTART_REQUESTED: ReasonText(
        "A restart was asked for by annotation.", _NOTHING, Charge.INTENT
    ),
    Reason.HOLD_ENDED: ReasonText("What the job was held for is settled.", _NOTHING, Charge.INTENT),
    Reason.BEGINNING_CHANGED: ReasonText(
        "A person named another save to go on from (checkpoint.resumeFrom, or a request).",
        "Nothing to do. What lay after that save stays in the run as a branch.",
        Charge.INTENT,
    ),
    Reason.RUN_CONTINUED: ReasonText(
        "The job goes on with a run that another job, now gone, had begun; the event lists what "
        "differs between the two.",
        "If the difference was not meant, correct it: no save was changed.",
        Charge.INTENT,
    ),
    Reason.RUN_TAKEN_OVER: ReasonText(
        "The run was claimed over the job that held it, because a person said that it had ended.",
        "Nothing to do. If that job does live, it publishes nothing any more and is held.",
        Charge.INTENT,
    ),
}

_HOLDS: Final[Mapping[Reason, ReasonText]] = {
    Reason.NO_VALID_CHECKPOINT: ReasonText(
        "Saves of this run exist, and none of them is valid. Nothing is started, so nothing is "
        "lost.",
        "`rtj inspect <store url> --run-id <runID>` says what is wrong with each. Put a good one "
        "back, or allow a fresh start: `kubectl annotate rtj <name> --overwrite "
        '\'resumable-training.dev/request={"id":"1","action":"allow-scratch"}\'`; each request '
        "needs another id.",
    ),
    Reason.RESTART_BUDGET_SPENT: ReasonText(
        "recovery.maxRestarts restarts in a row made no durable progress; the job is Failed.",
        "Find the cause in status.attempts and correct it. The checkpoints are kept: delete the "
        "job and apply it anew with the same runID.",
    ),
    Reason.RUN_IN_USE: ReasonText(
        "Another job that may still live holds this run.",
        "Delete that job, or choose another checkpoint.runID. If it is certainly gone, name its "
        "UID in checkpoint.takeOver, or allow it once: `kubectl annotate rtj <name> --overwrite "
        '\'resumable-training.dev/request={"id":"1","action":"take-over"}\'`; each request needs '
        "another id.",
    ),
    Reason.RUN_ALREADY_COMPLETE: ReasonText(
        "The run in the store has finished; there is nothing to resume.",
        "Choose another checkpoint.runID, or delete the run below the store's url, or begin at "
        "step 0 beside its saves with onExistingRun: Fresh, or train on from one of them with "
        "checkpoint.resumeFrom.",
    ),
    Reason.RUN_EXISTS: ReasonText(
        "The store holds saves of this run, and onExistingRun is Hold.",
        "Set onExistingRun to Resume or Fresh, or say it once by request: `restart` goes on from "
        "the newest save, `allow-scratch` begins at step 0, `resume-from` takes the save that it "
        "names.",
    ),
    Reason.RESUME_FROM_UNUSABLE: ReasonText(
        "The beginning that a person named cannot be used. Nothing was started.",
        "The message says why. Correct checkpoint.resumeFrom or remove it, or make a request with "
        "another id; `rtj inspect <store url> --run-id <runID>` lists all names.",
    ),
    Reason.STORE_UNREACHABLE: ReasonText(
        "The store does not answer, so it is unknown which saves it holds.",
        "Check checkpoint.store.endpoint and the network from the pod. It is tried again by "
        "itself.",
    ),
    Reason.FINAL_CHECKPOINT_NOT_DURABLE: ReasonText(
        "Training ended well, but its last save is not in the store yet.",
        "Correct what the message names (credentials, quota, endpoint). It is shipped and the job "
        "completes by itself; do not delete its pods.",
    ),
    Reason.UNSCHEDULABLE: ReasonText(
        "No node can take a pod of this job.",
        "`kubectl describe pod` lists what is missing: capacity, a taint, a node selector, a "
        "volume.",
    ),
}

_BAD_INPUT: Final[Mapping[Reason, ReasonText]] = {
    Reason.INVALID_SPEC: ReasonText(
        "The spec cannot be run.", "The message names the field and what to write."
    ),
    Reason.REQUEST_REFUSED: ReasonText(
        "The annotation resumable-training.dev/request was not done.",
        "The event and status.lastRequest say why. Write it anew with another id.",
    ),
    Reason.TRAINER_CONTAINER_AMBIGUOUS: ReasonText(
        "The template has several containers and none is named trainer.",
        "Name the container that trains `trainer`.",
    ),
    Reason.COMMAND_MISSING: ReasonText(
        "The trainer's container has no command; the image's own cannot be read.",
        "Write the command out: command: [python, train.py].",
    ),
    Reason.PATH_NOT_WRITABLE: ReasonText(
        "checkpoint.path lies on a volume that is mounted read-only.",
        "Mount it writable, or choose another path.",
    ),
    Reason.STORE_SCHEME_UNKNOWN: ReasonText(
        "No driver knows the scheme of checkpoint.store.url.", "Use s3:// or file://."
    ),
    Reason.NAME_TOO_LONG: ReasonText(
        "The job's name leaves no room in a pod's hostname of 63 characters.",
        "Choose a shorter name; set checkpoint.runID to go on with the same run.",
    ),
    Reason.POD_REJECTED: ReasonText(
        "The API server refused a pod of this job: a quota, a limit range, a policy.",
        "The message is the server's own, with what to change. It is tried again by itself, so a "
        "raised quota is enough.",
    ),
    Reason.IMAGE_NOT_PULLABLE: ReasonText(
        "An image of the pod cannot be pulled.",
        "Check its name and tag, imagePullSecrets, and the registry. It is tried again by itself.",
    ),
    Reason.CONTAINER_CONFIG_ERROR: ReasonText(
        "The kubelet cannot make a container: a Secret, ConfigMap or key it names is missing.",
        "Create what the message names. It is tried again by itself.",
    ),
    Reason.CONTAINER_CRASHING: ReasonText(
        "A container of the pod that is not the trainer ends again and again, so the pod does not "
        "get to run.",
        "Look at that container's log. The kubelet goes on trying.",
    ),
    Reason.CREDENTIALS_REFUSED: ReasonText(
        "The store refuses the credentials.",
        "Correct the Secret named by credentialsSecret, or the bucket's policy; running pods take "
        "it up within about two minutes.",
    ),
    Reason.CREDENTIALS_MISSING: ReasonText(
        "The sidecar has no credentials for the store.",
        "Set checkpoint.store.credentialsSecret to a Secret with AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or set up workload identity.",
    ),
    Reason.BUCKET_MISSING: ReasonText(
        "The bucket does not exist.",
        "Create it, or correct checkpoint.store.url. It is tried again by itself.",
    ),
}

_SIDECAR: Final[Mapping[Reason, ReasonText]] = {
    Reason.CHECKPOINT_TORN: ReasonText(
        "A save is incomplete: its writer was stopped in the middle. It is never resumed.",
        _SELF_HEALING,
    ),
    Reason.CHECKPOINT_CORRUPT: ReasonText(
        "The bytes of a save are not those that were written. It is marked and never resumed.",
        f"{_SELF_HEALING} If it recurs, check the disks and the object store.",
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
    Reason.FOREIGN_CHECKPOINT: ReasonText(
        "A save that was in the directory before this job's first start could be taken for its "
        "newest one. It was moved aside, below `.rtj/set-aside`, and is never deleted.",
        "Keep what is not this run's own outside of checkpoint.path.",
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
        "The store lacks what the commit of a save stands on, such as conditional writes.",
        "The message names what is missing. Use a store or a version that has it.",
    ),
    Reason.RUN_DAMAGED: ReasonText(
        "A record of the run that others rest on cannot be read.",
        "The message names the object. Nothing is overwritten: put it back from a version or a "
        "copy, or start another run with another checkpoint.runID.",
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
    Reason.SUPERVISOR_MISSING: ReasonText(
        "The trainer's image has no Python, so a shell supervises it: its output is not read.",
        "Put a python3 (3.8 or newer) into the trainer's image.",
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

SECTIONS: Final[Mapping[str, Mapping[Reason, ReasonText]]] = MappingProxyType(
    {
        "Life of a job": _LIFE,
        "Causes of an attempt": _CAUSES,
        "Why a job is held": _HOLDS,
        "Bad input": _BAD_INPUT,
        "Checkpoints and sidecar": _SIDECAR,
    }
)
"""The table in the order that the documentation prints it."""

TEXTS: Final[Mapping[Reason, ReasonText]] = MappingProxyType(
    {reason: text for section in SECTIONS.values() for reason, text in section.items()}
)
