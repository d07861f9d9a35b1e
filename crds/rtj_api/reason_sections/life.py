"""Reasons that tell where a job is in its life. Nothing is wrong with it.

Text only: must never do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtj_api.reasons import Reason, ReasonText

_NOTHING = "Nothing to do."

LIFE: Final[Mapping[Reason, ReasonText]] = {
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
    Reason.QUEUED: ReasonText(
        "All pods wait in Kueue's queue for quota; nothing is held meanwhile.",
        "The message is Kueue's own. `kubectl get workloads` shows the place; a higher "
        "scheduling.priorityClass, more quota or the end of another job lets it go.",
    ),
    Reason.SCHEDULING_GATED: ReasonText(
        "A scheduling gate of the template, or one that another controller added, holds pods back.",
        "Who added the gate takes it off; the message names it.",
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
    Reason.SPARE_TOOK_OVER: ReasonText(
        "A pod of spec.recovery.spares plays a lost rank from now on, and another spare is made "
        "once the gang trains.",
        _NOTHING,
    ),
    Reason.SCALING_UP: ReasonText(
        "An elastic gang that is smaller than wanted has room again: the pods are there and ready, "
        "and the next save is awaited, at which it grows.",
        _NOTHING,
    ),
    Reason.NODES_AVOIDED: ReasonText(
        "New pods keep off nodes where trainings failed of late, of whatever job.",
        "Have these nodes looked at; see nodes.md. spec.recovery.avoidNodes says how strictly they "
        "are kept off.",
    ),
    Reason.STOP_AGREED: ReasonText(
        "A pod or its node is about to go, or the job is being suspended, and there is time for "
        "every rank to save at one step first. The message has the sum.",
        _NOTHING,
    ),
    Reason.LAST_SAVE_COUNTS: ReasonText(
        "A pod or its node is about to go, or the job is being suspended, and no step was agreed "
        "on at which all ranks save first: there is no time for it, or some rank cannot be told "
        "or does not tell its steps. The saves that are finished are still shipped.",
        "If the time was too short, raise terminationGracePeriodSeconds or sidecar.drainSeconds, "
        "or save faster. Else let every rank write RTJ_PROGRESS_FILE, and see drain.md.",
    ),
    Reason.STOP_TOO_LATE: ReasonText(
        "As LastSaveCounts, and not even the save that is on its way can be shipped in the time "
        "that is left: the newest durable one counts.",
        "Raise terminationGracePeriodSeconds or sidecar.drainSeconds, or see why uploads are slow.",
    ),
    Reason.STOP_MISSED: ReasonText(
        "All ranks were asked to save and end at one step, and did not in time.",
        "Look whether the trainer reads RTJ_STOP_FILE after every step, as recovery.stop.by says "
        "it does; see drain.md.",
    ),
    Reason.NOT_COMPLETE: ReasonText("The job has not ended well so far.", _NOTHING),
    Reason.NOT_FAILED: ReasonText("The job has not been given up.", _NOTHING),
    Reason.STARTED_FROM_SCRATCH: ReasonText(
        "The attempt starts at step 0, because the run has no save, or because that was allowed.",
        "If the run should have had saves, check checkpoint.runID and checkpoint.store.url.",
    ),
    Reason.RESUMED_LOSS_OUTSIDE: ReasonText(
        "The first losses after a resume are not those that were recorded with the save, give or "
        "take their noise. Nothing is done about it.",
        "Look at the loss curve around that step: a wrong learning rate, another batch order, or "
        "a part of the state that was begun anew (resumeMessage).",
    ),
    Reason.RESUMED_OTHERWISE: ReasonText(
        "Steps that were run twice around a restart are not as they were the first time: "
        "status.checkpoint.resumeReplay says what differs, and names a learning-rate scheduler or "
        "a data loader that began anew.",
        "Let the trainer save and load what is named. recovery.verifyResume says what else is done "
        "about it.",
    ),
    Reason.RESUMED_PARTIALLY: ReasonText(
        "The save that is resumed does not hold all of the training's state, or was made by "
        "another number of ranks: status.checkpoint.resumeQuality and "
        "resumeMessage say what is missing. The framework begins that part anew, mostly without a "
        "word.",
        "If it matters, let the trainer save what is missing.",
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
