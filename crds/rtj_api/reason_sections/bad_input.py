"""Reasons that refuse what a person wrote.

Text only: must never do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtj_api.reasons import Reason, ReasonText

BAD_INPUT: Final[Mapping[Reason, ReasonText]] = {
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
        "No driver knows the scheme of checkpoint.store.url, or its client is not in the image.",
        "Use one of docs/stores.md, and a sidecar's image that has its client.",
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
    Reason.QUOTA_EXCEEDED: ReasonText(
        "A ResourceQuota of the namespace has no room for a pod of this job.",
        "The message names it. Raise it, end something that counts against it, or ask for less; "
        "it is tried again by itself.",
    ),
    Reason.QUEUE_NOT_SERVED: ReasonText(
        "scheduling.gang is kueue, and Kueue has not taken the pods up. They do not run past it.",
        "Install Kueue with its pod integration, or let managedJobsNamespaceSelector match this "
        "namespace. To run without it set scheduling.gang: none.",
    ),
    Reason.QUEUED_ONE_BY_ONE: ReasonText(
        "The template has Kueue's queue label, so each pod queues by itself: half a gang may be "
        "let go, and holds its quota for nothing.",
        "Remove the label and set scheduling.gang: kueue and scheduling.queue.",
    ),
    Reason.GANG_UNAVAILABLE: ReasonText(
        "The PodGroup that scheduling.gang asks for could not be made.",
        "The message says why: the scheduler's CRD is missing, a permission, or a field. It is "
        "tried again by itself.",
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
