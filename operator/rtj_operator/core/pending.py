"""Why a pod does not get to run, in words that say what would change it.

From what the scheduler, the kubelet and the API server say of it. What they say differs between
versions: what is not recognised is passed on as it is. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason

from rtj_operator.core import queueing, rejections
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.observed import PodView

_WAITING: dict[str, Reason] = {
    "ErrImagePull": Reason.IMAGE_NOT_PULLABLE,
    "ImagePullBackOff": Reason.IMAGE_NOT_PULLABLE,
    "InvalidImageName": Reason.IMAGE_NOT_PULLABLE,
    "ErrImageNeverPull": Reason.IMAGE_NOT_PULLABLE,
    "RegistryUnavailable": Reason.IMAGE_NOT_PULLABLE,
    "CreateContainerConfigError": Reason.CONTAINER_CONFIG_ERROR,
    "CreateContainerError": Reason.CONTAINER_CONFIG_ERROR,
    "RunContainerError": Reason.CONTAINER_CONFIG_ERROR,
}
_REMEDIES: dict[Reason, str] = {
    Reason.IMAGE_NOT_PULLABLE: "Check the image's name, tag and imagePullSecrets; it is tried "
    "again by itself, and at once when spec.template changes",
    Reason.CONTAINER_CONFIG_ERROR: "Make what is missing (Secret, ConfigMap, key, mount), or "
    "change spec.template; it is tried again by itself",
    Reason.CONTAINER_CRASHING: "See its log (kubectl logs POD -c CONTAINER) and correct it in "
    "spec.template; the kubelet goes on trying",
}
_QUEUE_SECONDS = 30.0  # Kueue's webhook takes a pod while it is made; a scheduler within a second
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 5.0, 30.0  # at what Kueue says of a gang that waits
# What the scheduler says (kube-scheduler, FailedScheduling; Volcano and scheduler-plugins of a
# group) -> what kind of thing is missing, and what to do. The first that fits.
_SCHEDULER: tuple[tuple[str, Reason, str], ...] = (
    (
        "persistentvolumeclaim",
        Reason.VOLUME_UNAVAILABLE,
        "Make the claim that spec.template names, or wait until it is bound (its StorageClass and "
        "`kubectl describe pvc` say why it is not)",
    ),
    (
        "volume node affinity conflict",
        Reason.VOLUME_UNAVAILABLE,
        "Its volume can be used on other nodes only: free one of those, or use a volume that all "
        "nodes reach",
    ),
    (
        "max volume count",
        Reason.VOLUME_UNAVAILABLE,
        "The nodes hold as many volumes as they may: free some, or add nodes",
    ),
    (
        "/gpu",
        Reason.UNSCHEDULABLE,
        "Free GPUs or add nodes with some, or lower the trainer's GPU limit or spec.replicas",
    ),
    (
        "Insufficient",
        Reason.UNSCHEDULABLE,
        "Free or add capacity, or lower the resources in spec.template",
    ),
    (
        "affinity/selector",
        Reason.UNSCHEDULABLE,
        "Change nodeSelector or affinity in spec.template, or label a node",
    ),
    (
        "untolerated taint",
        Reason.UNTOLERATED_TAINT,
        "Tolerate the taint in spec.template.spec.tolerations, or remove it from a node",
    ),
    (
        "pod group",
        Reason.UNSCHEDULABLE,
        "The gang is placed as a whole or not at all: free or add room for all its pods",
    ),
    (
        "podgroup",
        Reason.UNSCHEDULABLE,
        "The gang is placed as a whole or not at all: free or add room for all its pods",
    ),
    (
        "unschedulable",
        Reason.UNSCHEDULABLE,
        "The nodes left are cordoned: `kubectl uncordon` one, or add nodes",
    ),
)
_NO_NODE = "Free or add capacity, or change the template's resources, nodeSelector or tolerations"
_MISSING, _VOLUME = Reason.CONTAINER_CONFIG_ERROR, Reason.VOLUME_UNAVAILABLE
_KUBELET: tuple[tuple[str, Reason, str], ...] = (
    ("secret", _MISSING, "Make the Secret, or correct its name in spec.template"),
    ("configmap", _MISSING, "Make the ConfigMap, or correct its name in spec.template"),
    ("MountVolume", _VOLUME, "Check the volume and the server or disk behind it"),
    ("AttachVolume", _VOLUME, "Check the volume: another node may still have it"),
    ("FailedMount", _VOLUME, "Check the volume and the server or disk behind it"),
)


def why(gang: Gang, pod: PodView) -> tuple[Reason, str] | None:
    """What keeps this pod from running, and the remedy; None where nothing is known against it.

    Holds nothing that differs from try to try.
    """
    if pod.is_terminal or pod.deleting_since is not None:
        return None
    if pod.is_gated:
        return _gated(gang, pod)
    if pod.scheduled is False:
        text = (pod.unschedulable_message or "no node fits").strip().rstrip(".")
        known = ((why, r) for mark, why, r in _SCHEDULER if mark.lower() in text.lower())
        reason, remedy = next(known, (Reason.UNSCHEDULABLE, _NO_NODE))
        return reason, f"{text}. {remedy}"
    if pod.scheduled is None and pod.node is None:
        return _unseen(gang, pod)
    told = _told_by_node(pod)
    if told is not None:
        return told
    found = _not_made(gang, pod) or _container(pod)
    return None if found is None else (found[0], f"{found[1]}. {_REMEDIES[found[0]]}")


def _gated(gang: Gang, pod: PodView) -> tuple[Reason, str] | None:
    if not queueing.waits_in_queue(pod):
        return (
            Reason.SCHEDULING_GATED,
            f"held back by scheduling gate {', '.join(pod.gates)}: whoever added it, "
            "spec.template or another controller, takes it off",
        )
    queue = f"Kueue's LocalQueue {gang.spec.queue}"
    if not pod.is_queued:
        if not gang.alarm.has_passed(pod.created_at + _QUEUE_SECONDS):
            return None
        return (
            Reason.QUEUE_NOT_SERVED,
            f"{queue} is asked for and Kueue has not taken pod {pod.name} up: install Kueue with "
            "its pod integration, let its managedJobsNamespaceSelector match this namespace, or "
            "set scheduling.gang: none",
        )
    told = gang.observed.queue.message if gang.observed.queue is not None else None
    # Kueue's word changes without any sign to us.
    gang.alarm.has_passed(gang.now + (_LOOK_SECONDS if told else _FIRST_LOOK_SECONDS))
    text = (told or "it has not let the gang go yet").strip().rstrip(".")
    return (
        Reason.QUEUED,
        f"the gang waits in {queue}: {text}. It holds nothing meanwhile, and goes on by itself; "
        "`kubectl get workloads` shows its place",
    )


def _unseen(gang: Gang, pod: PodView) -> tuple[Reason, str] | None:
    """No scheduler has said a word of it."""
    if not gang.alarm.has_passed(pod.created_at + _QUEUE_SECONDS):
        return None
    name = pod.scheduler or "default-scheduler"
    return (
        Reason.UNSCHEDULABLE,
        f"scheduler {name} has not looked at pod {pod.name}. See that it runs and that "
        "schedulerName in spec.template names it",
    )


def _untouched(pod: PodView) -> bool:
    """No container has ever begun there."""
    known = [c for c in (pod.sidecar, *pod.others, pod.trainer) if c is not None]
    waits = pod.node is not None and pod.phase == "Pending"
    return waits and all(
        not c.running
        and c.ended is None
        and c.last_end is None
        and c.waiting_reason in (None, "ContainerCreating", "PodInitializing")
        for c in known
    )


def _told_by_node(pod: PodView) -> tuple[Reason, str] | None:
    if pod.trouble is None or not _untouched(pod):
        return None
    text = pod.trouble.strip().rstrip(".")
    ask = f"`kubectl describe pod {pod.name}` lists what its node tried"
    known = ((why, r) for mark, why, r in _KUBELET if mark.lower() in text.lower())
    reason, remedy = next(known, (Reason.CONTAINER_CONFIG_ERROR, ask))
    return reason, f"node {pod.node}: {text}. {remedy}"


def _not_made(gang: Gang, pod: PodView) -> tuple[Reason, str] | None:
    """It has a node and no container has ever begun there: usually a volume that is not there."""
    if not _untouched(pod):
        return None
    # It may have waited in a queue for days before.
    since = pod.scheduled_since if pod.scheduled_since is not None else pod.created_at
    if not gang.alarm.has_passed(since + gang.policy.containers_made_seconds):
        return None
    return (
        Reason.CONTAINER_CONFIG_ERROR,
        f"no container of pod {pod.name} was made within "
        f"{gang.policy.containers_made_seconds:.0f} s (a volume, Secret or ConfigMap that it "
        f"mounts is missing, or an image is still being pulled: kubectl describe pod {pod.name})",
    )


def _container(pod: PodView) -> tuple[Reason, str] | None:
    for container in (pod.sidecar, *pod.others, pod.trainer):
        if container is None:
            continue
        if container is not pod.trainer and container.waiting_reason == "CrashLoopBackOff":
            end = container.last_end
            code = f", exit code {end.exit_code}" if end is not None else ""
            said = f" ({end.reason})" if end is not None and end.reason else ""
            text = f"container {container.name} ends again and again{code}{said}"
            return Reason.CONTAINER_CRASHING, text
        if container.waiting_reason in _WAITING:
            # The kubelet's own text differs from try to try; its reason word does not.
            word = container.waiting_reason
            return _WAITING[word], f"container {container.name}: {word}"
    return None


def words(gang: Gang, member: Member) -> str | None:
    """The same of one rank, also where the API server refuses its pod."""
    if member.pod is None:
        refused = gang.observed.rejections.get(member.name)
        if refused is None:
            return None
        text = rejections.worded(refused.message)
        if rejections.reason_of(refused.message) == Reason.GANG_UNAVAILABLE:
            return text
        return f"the API server refused its pod: {text}"
    found = why(gang, member.pod)
    return found[1] if found is not None else None


def blocked(gang: Gang) -> tuple[Reason, str] | None:
    """Why a pod cannot get to run, by the lowest rank that is stuck, with the remedy."""
    retry = f". It is tried again every {gang.policy.create_retry_seconds:.0f} s"
    for member in gang.members:
        if member.pod is None:
            text = words(gang, member)
            if text is not None:
                refused = gang.observed.rejections[member.name]
                reason = rejections.reason_of(refused.message)
                return reason, f"rank {member.rank}: {text}{retry}"
            continue
        stuck = why(gang, member.pod)
        if stuck is not None:
            return stuck[0], f"rank {member.rank}: {stuck[1]}"
    return None
