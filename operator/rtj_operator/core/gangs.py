"""What a queue or a gang scheduler wants on a pod, and the object that stands for the gang.

Their names, labels and kinds are written here and nowhere else (Kueue 0.17 `pkg/controller/jobs/
pod`, Volcano's and scheduler-plugins' PodGroup, Kubernetes' scheduling.k8s.io). Pure: manifest in,
manifest out. Must never change what the user wrote of placement: the template goes first.
"""

from __future__ import annotations

from typing import Any

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.v1alpha1 import GangScheduler, JobSpec

from rtj_operator.core.pod_facts import Owner
from rtj_operator.core.template import Manifest, Refusal, refuse

_KUEUE = "kueue.x-k8s.io"
QUEUE_LABEL = f"{_KUEUE}/queue-name"
QUEUE_GROUP_LABEL = f"{_KUEUE}/pod-group-name"
QUEUE_MANAGED_LABEL = QUEUE_FINALIZER = f"{_KUEUE}/managed"
QUEUE_GATE = f"{_KUEUE}/admission"
QUEUE_STOPS = "TerminationTarget"  # the condition that Kueue sets before it deletes a pod
_TOTAL = f"{_KUEUE}/pod-group-total-count"
_SERVING = f"{_KUEUE}/pod-group-serving"
_ROLE = f"{_KUEUE}/role-hash"
_INDEX = f"{_KUEUE}/pod-group-pod-index-label"
_PRIORITY = f"{_KUEUE}/priority-class"
_ONE_ROLE = "rank"

# Who schedules where the template names nobody.
_SCHEDULERS = {
    GangScheduler.VOLCANO: "volcano",
    GangScheduler.SCHEDULER_PLUGINS: "scheduler-plugins-scheduler",
}
# The newest version first; the first that the API server has is used.
GROUP_APIS: dict[str, tuple[str, ...]] = {
    GangScheduler.VOLCANO: ("scheduling.volcano.sh/v1beta1",),
    GangScheduler.SCHEDULER_PLUGINS: ("scheduling.x-k8s.io/v1alpha1",),
    GangScheduler.NATIVE: tuple(
        f"scheduling.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha3", "v1alpha2")
    ),
}
_WITHOUT_PRIORITY = "scheduling.k8s.io/v1alpha2"
IMMUTABLE = "immutable"  # as API servers say of a field that may not change
_INSTALL = {
    GangScheduler.VOLCANO: "install Volcano",
    GangScheduler.SCHEDULER_PLUGINS: "install the CRD and the scheduler of scheduler-plugins",
    GangScheduler.NATIVE: "use Kubernetes 1.36 or later with the feature gate GenericWorkload and "
    "that API version on",
}
_FILLED_IN = {
    GangScheduler.VOLCANO: ("minMember", "queue", "priorityClassName"),
    GangScheduler.SCHEDULER_PLUGINS: ("minMember",),
    GangScheduler.NATIVE: ("schedulingPolicy",),
}


def joined(manifest: Manifest, spec: JobSpec, *, owner: Owner, since: int | None) -> Manifest:
    """The pod's manifest as a member of its gang. `since`: when its queued group began."""
    wish = spec.scheduling
    if wish.gang is GangScheduler.NONE:
        return manifest
    meta, pod = manifest["metadata"], dict(manifest["spec"])
    labels, notes = dict(meta["labels"]), dict(meta["annotations"])
    name = contract.group_name(job=owner.name, job_uid=owner.uid)
    if wish.gang is GangScheduler.KUEUE:
        labels |= {
            QUEUE_LABEL: wish.queue or "",
            QUEUE_GROUP_LABEL: contract.group_name(
                job=owner.name, job_uid=owner.uid, since=since or 1
            ),
        }
        if wish.priority_class:
            labels[_PRIORITY] = wish.priority_class
        notes |= {
            _TOTAL: str(spec.replicas),
            # A pod that was deleted may end with 0. Without this Kueue takes it for a part that
            # is done, gives its quota away for good and never lets the replacement go (seen).
            _SERVING: "true",
            # Ranks are alike whatever nodes a replaced pod keeps off: else Kueue would take that
            # affinity for another role, and end the gang.
            _ROLE: _ONE_ROLE,
            _INDEX: contract.LABEL_RANK,
        }
        # Kueue's webhook adds the same gate. Where there is none, nothing may run past the queue.
        gates = [g for g in pod.get("schedulingGates") or [] if g.get("name") != QUEUE_GATE]
        pod["schedulingGates"] = [*gates, {"name": QUEUE_GATE}]
    elif wish.gang is GangScheduler.VOLCANO:
        notes["scheduling.k8s.io/group-name"] = name
    elif wish.gang is GangScheduler.SCHEDULER_PLUGINS:
        labels["scheduling.x-k8s.io/pod-group"] = name
    else:
        pod["schedulingGroup"] = {"podGroupName": name}
    if wish.gang in _SCHEDULERS:
        pod.setdefault("schedulerName", _SCHEDULERS[wish.gang])
    return {**manifest, "metadata": {**meta, "labels": labels, "annotations": notes}, "spec": pod}


def desired_group(spec: JobSpec, *, owner: Owner) -> Manifest | None:
    """The PodGroup of the gang, owned by the job, without its apiVersion (see GROUP_APIS); None
    where the pods alone are the group."""
    wish = spec.scheduling
    if wish.gang not in GROUP_APIS:
        return None
    wanted: dict[str, Any] = dict(wish.pod_group or {})
    stated = (spec.template.get("spec") or {}).get("priorityClassName")
    if wish.gang is GangScheduler.NATIVE:
        wanted["schedulingPolicy"] = {"gang": {"minCount": spec.replicas}}
        # The group's counts where gangs preempt, whatever its pods': without one it is 0.
        wanted = {**({"priorityClassName": stated} if stated else {}), **wanted}
    else:
        wanted["minMember"] = spec.replicas
    if wish.gang is GangScheduler.VOLCANO:
        priority = wish.priority_class or stated
        wanted |= {"queue": wish.queue} if wish.queue else {}
        wanted |= {"priorityClassName": priority} if priority else {}
    return {
        "kind": "PodGroup",
        "metadata": {
            "name": contract.group_name(job=owner.name, job_uid=owner.uid),
            "namespace": owner.namespace,
            "labels": {contract.LABEL_JOB: owner.name},
            "ownerReferences": owner.references(),
        },
        "spec": wanted,
    }


def ways_to_apply(spec: JobSpec, *, owner: Owner) -> list[Manifest]:
    """The PodGroup as the API server may take it, the best way first; the next where that version
    of its kind is not there, or where a field cannot be changed any more.

    The priority that a native group takes from its pods is given up for that: Kubernetes 1.36 has
    it with a feature gate only, and a group that was made without it never gets it.
    """
    group = desired_group(spec, owner=owner)
    if group is None:
        return []
    found = []
    for version in GROUP_APIS[spec.scheduling.gang]:
        whole = {"apiVersion": version, **group}
        plain = {name: told for name, told in group["spec"].items() if name != "priorityClassName"}
        is_own = "priorityClassName" in (spec.scheduling.pod_group or {})
        if spec.scheduling.gang is not GangScheduler.NATIVE or is_own or plain == group["spec"]:
            found.append(whole)
        elif version == _WITHOUT_PRIORITY:
            found.append({**whole, "spec": plain})
        else:
            found += [whole, {**whole, "spec": plain}]
    return found


def is_worth_another_way(*, code: int, said: str) -> bool:
    return code == 404 or IMMUTABLE in said


def check(spec: JobSpec) -> None:
    """Raises SpecRefused for what no scheduler could make sense of."""
    wish = spec.scheduling
    if spec.recovery.spares and wish.gang is not GangScheduler.NONE:
        # A group has as many pods as ranks, and a pod that was a spare would never be one of them.
        refuse(
            Reason.INVALID_SPEC,
            f"spec.recovery.spares does not go with spec.scheduling.gang {wish.gang}: a group "
            "holds the ranks' pods alone, and one that a spare stands in for would never be whole "
            "again. Set one of the two.",
        )
    for name in _FILLED_IN.get(wish.gang, ()):
        if name in (wish.pod_group or {}):
            refuse(
                Reason.INVALID_SPEC,
                f"spec.scheduling.podGroup.{name} is filled in by the operator, from "
                f"spec.replicas and spec.scheduling. Remove it.",
            )


def queued_alone(spec: JobSpec) -> Refusal | None:
    """A template with Kueue's label: each pod would be admitted by itself, half a gang too."""
    labels = (spec.template.get("metadata") or {}).get("labels") or {}
    if QUEUE_LABEL not in labels or spec.scheduling.gang is GangScheduler.KUEUE:
        return None
    return Refusal(
        Reason.QUEUED_ONE_BY_ONE,
        f"spec.template.metadata.labels has {QUEUE_LABEL}, so each pod waits in the queue by "
        f"itself and half the gang may be let go. Remove it and set spec.scheduling to gang: "
        f"kueue, queue: {labels[QUEUE_LABEL]}.",
    )


def unavailable(spec: JobSpec, *, code: int, said: str) -> str:
    """Why the gang has no PodGroup, and the remedy, from the API server's answer."""
    gang = spec.scheduling.gang
    if code == 404:
        return (
            f"no PodGroup can be made: the API server has no podgroups in "
            f"{' or '.join(GROUP_APIS[gang])}. To use scheduling.gang: {gang}, {_INSTALL[gang]}; "
            f"or set another scheduling.gang"
        )
    if code == 403:
        return (
            f"no PodGroup can be made: {said}. The operator's ClusterRole must allow create and "
            f"patch of podgroups: upgrade the chart, or see rbac.create"
        )
    if IMMUTABLE in said:
        return (
            f"the PodGroup cannot be changed: {said}. Set spec.scheduling back, or delete the "
            "PodGroup: it is made anew as the spec has it, before the next pod"
        )
    return f"no PodGroup can be made: {said}. Correct spec.scheduling.podGroup"
