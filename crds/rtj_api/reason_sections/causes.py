"""Reasons why an attempt ended or another was made, with whose budget it uses.

Text only: must never do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtj_api.reasons import Charge, Reason, ReasonText

_NOTHING = "Nothing to do."
_SELF_HEALING = "Nothing to do: training goes on by itself from the newest valid checkpoint."

CAUSES: Final[Mapping[Reason, ReasonText]] = {
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
    Reason.TRAINING_DIVERGED: ReasonText(
        "The loss left the numbers or exploded, or after a resume it was another training than "
        "before. The trainer was stopped before it saved more of it.",
        "Training goes on from the newest save before that. If it comes again at the same step "
        "look at the data of that step, at the learning rate and at mixed precision. "
        "recovery.verifyResume.onDivergence: Report only tells.",
        Charge.USER,
    ),
    Reason.TRAINER_HUNG: ReasonText(
        "The gang made no step, printed nothing and saved nothing for far longer than it ever "
        "takes. The culprit is the rank that the others waited for.",
        "The message says what each hung process was doing. recovery.hang.timeoutSeconds gives a "
        "trainer with long silent parts more time.",
        Charge.USER,
    ),
    Reason.TARGET_STEP_NOT_REACHED: ReasonText(
        "All trainers ended with exit code 0 before success.targetStep was reached.",
        "Nothing to do where each run of the script makes a part of the steps. Else correct its "
        "number of steps, or success.targetStep. Where no step is known, write a progress file.",
        Charge.USER,
    ),
    Reason.POD_DELETED: ReasonText(
        "A pod was deleted by someone else than the operator.", _SELF_HEALING, Charge.INFRASTRUCTURE
    ),
    Reason.POD_EVICTED: ReasonText(
        "A pod was evicted: a drain, or pressure on its node. Where the kubelet names this pod's "
        "own use of disk, or of more memory than it requests, the restart uses the job's budget.",
        f"{_SELF_HEALING} If nodes lack memory or disk, state requests that match the use.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.POD_PREEMPTED: ReasonText(
        "A pod was ended in favour of one of higher priority.",
        f"{_SELF_HEALING} A higher priorityClassName in the template prevents it.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.PREEMPTED_BY_QUEUE: ReasonText(
        "Kueue took the gang's quota back: for a job of higher priority, for a queue that lent it, "
        "or since its pods were not ready in time. The message is Kueue's own.",
        "Nothing to do: the last save is shipped, the job queues anew and goes on from it.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.POD_FAILED: ReasonText(
        "A pod ended without its trainer being the cause, or its node's kubelet refused it.",
        "`kubectl describe pod` and the event's message say what the kubelet reported.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.NODE_LEAVING: ReasonText(
        "A node gave notice that it will end (a spot or preemptible instance), and the ranks there "
        "were moved once all had stopped at one step.",
        _SELF_HEALING,
        Charge.INFRASTRUCTURE,
    ),
    Reason.STRAGGLER_REPLACED: ReasonText(
        "A rank for which all others waited got a new pod on another node, after a durable save "
        "(recovery.straggler.onSlow: Replace); or, later, that this has helped.",
        f"{_SELF_HEALING} Look at the node that it left: clocks, temperature, other programs.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.NODE_OUT_OF_MEMORY: ReasonText(
        "The kernel killed a process of the trainer although its container was below its own "
        "memory limit: the node had none left.",
        f"{_SELF_HEALING} The rank moves to another node. State resources.requests.memory that "
        "match the use of all pods of that node; the third time without a durable step it uses the "
        "job's budget.",
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
    Reason.PROBE_FAILED: ReasonText(
        "checkpoint.validation.probe failed on the restored save, before any trainer started. The "
        "next older save is tried; if that one passes, this one is marked invalid. When two saves "
        "fail alike, or none is left, the job is held and no save is marked.",
        "The message has the command, its exit code and last lines. Held: correct or remove the "
        "probe, or request a restart.",
        Charge.CHECKPOINT,
    ),
    Reason.PROBE_NOT_RUN: ReasonText(
        "checkpoint.validation.probe could not be run at all, which says nothing of the save: its "
        "program is missing in the trainer's image, that image has no python3 for the supervisor, "
        "or the sidecar's image is older than the probe.",
        "Correct the command or the image, or remove the probe.",
        Charge.CHECKPOINT,
    ),
    Reason.PLACEMENT_TIMEOUT: ReasonText(
        "Not all ranks found a node in time, so all pods are given back and tried again later; "
        "two half-placed gangs would wait for each other for ever.",
        "`kubectl describe pod` lists what is missing. It is tried again by itself.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.SCALED_DOWN: ReasonText(
        "A rank found no place for elastic.scaleDownAfterSeconds, so the gang goes on with fewer "
        "pods. It grows again by itself when there is room.",
        "Free or add capacity. See elastic.md; status.elastic has the size and the arithmetic.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.SCALED_UP: ReasonText(
        "An elastic gang has room again and grew at a save.", _NOTHING, Charge.INTENT
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
