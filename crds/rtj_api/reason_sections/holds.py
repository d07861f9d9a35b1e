"""Reasons why a job waits for a person, or was given up.

Text only: must never do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtj_api.reasons import Charge, Reason, ReasonText

HOLDS: Final[Mapping[Reason, ReasonText]] = {
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
    Reason.DEADLINE_EXCEEDED: ReasonText(
        "The job was active for spec.activeDeadlineSeconds; it is Failed.",
        "The checkpoints are kept: delete the job and apply it anew with the same runID and a "
        "longer deadline, and it goes on from the newest one.",
        Charge.INTENT,
    ),
    Reason.START_DEADLINE_EXCEEDED: ReasonText(
        "No trainer was started within spec.startDeadlineSeconds; the job is Failed.",
        "The message says what it waited for. Delete the job and apply it anew when there is room.",
        Charge.INTENT,
    ),
    Reason.DETERMINISTIC_FAILURE: ReasonText(
        "The same fault came again and again at the same place, also on another node or from an "
        "older save, so no restart will pass it. The job is Failed before its budget is spent; it "
        "is held instead where saves had become suspect, and they are not any more.",
        "The message says what was tried and which steps' data to look at. Correct the program, "
        "its image or its data. Failed: apply the job anew with the same runID. Held: a changed "
        "spec goes on from the newest save.",
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
    Reason.QUEUE_DEACTIVATED: ReasonText(
        "Kueue's Workload of this job was deactivated, by a person or by Kueue's limit of tries, "
        "and its pods were ended.",
        "See why in the Workload's conditions. To queue anew: `kubectl annotate rtj <name> "
        '--overwrite \'resumable-training.dev/request={"id":"1","action":"restart"}\'`, or change '
        "the spec.",
        Charge.INFRASTRUCTURE,
    ),
    Reason.UNTOLERATED_TAINT: ReasonText(
        "The nodes that could take a pod of this job have a taint that it does not tolerate.",
        "Tolerate it in spec.template.spec.tolerations, or remove it from a node.",
    ),
    Reason.VOLUME_UNAVAILABLE: ReasonText(
        "A volume of the pod is missing, not bound, on other nodes, or cannot be mounted.",
        "The message names it. Make or bind the claim, free the node that holds the volume, or "
        "correct spec.template; it is tried again by itself.",
    ),
    Reason.CANNOT_SCALE_DOWN: ReasonText(
        "A rank of an elastic gang finds no place, and no smaller size is possible: too few have "
        "one, the newest save fits one number of ranks only, or a save is on its way.",
        "The message says which. Free or add capacity, lower elastic.minReplicas, or save in a "
        "layout that can be split anew; see elastic.md.",
    ),
    Reason.UNSCHEDULABLE: ReasonText(
        "No node can take a pod of this job.",
        "`kubectl describe pod` lists what is missing: capacity, a taint, a node selector, a "
        "volume.",
    ),
}
