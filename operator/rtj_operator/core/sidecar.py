"""The sidecar's container: the only one that gets the store's credentials.

A native sidecar and the first init container: its postStart hook ends as soon as it has installed
the supervisor, so the pod's own start waits for nothing else. Must never ask for a
capability beyond those it needs to hand files to the trainer's user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from rtj_api import contract, wire
from rtj_api.v1alpha1 import JobSpec

from rtj_operator.core.local_volume import disk_request
from rtj_operator.core.mounts import memory_bytes
from rtj_operator.core.quantities import mebibytes, parsed
from rtj_operator.core.template import Manifest

# Of a Guaranteed pod: all four stated, and a whole CPU for nodes that pin CPUs.
GUARANTEED = {
    "requests": {"cpu": "1", "memory": "1Gi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
# Of any other pod: no CPU limit, which would only throttle uploads and the way back to work.
BURSTABLE = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
FILE_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER")
STARTUP_SECONDS = 120
# The kubelet starts the next container when this has ended. A startup probe would say the same up
# to two seconds later: one of its own period, one of the kubelet's look at the runtime.
_INSTALLED = (
    f"i=0; until [ -x {contract.SUPERVISE} ]; do i=$((i+1)); "
    f"[ $i -le {STARTUP_SECONDS * 20} ] || exit 1; sleep 0.05; done"
)


def desired_sidecar(
    spec: JobSpec,
    *,
    pod: Mapping[str, Any],
    trainer: Mapping[str, Any],
    mounts: Sequence[Manifest],
    config: wire.SidecarConfig,
    default_image: str,
    default_pull_policy: str | None,
    default_resources: Mapping[str, Any] | None,
) -> Manifest:
    """The container, as it stands in `initContainers[0]`."""
    wanted = spec.sidecar
    port = config.status_port
    on_host = bool(pod.get("hostNetwork"))
    container: Manifest = {
        "name": contract.CONTAINER_SIDECAR,
        "image": wanted.image or default_image,
        "restartPolicy": "Always",
        "env": _environment(spec, trainer=trainer, mounts=mounts, config=config),
        "lifecycle": {"postStart": {"exec": {"command": ["/bin/sh", "-c", _INSTALLED]}}},
        "resources": _resources(
            spec,
            pod=pod,
            default=default_resources,
            in_memory=memory_bytes(pod, mounts),
        ),
        "securityContext": _security_context(pod=pod, trainer=trainer),
        "volumeMounts": [
            {"name": contract.VOLUME_RUN, "mountPath": contract.MOUNT_RUN},
            {"name": contract.VOLUME_PODINFO, "mountPath": contract.MOUNT_PODINFO},
            *mounts,
        ],
    }
    if not on_host:  # a declared port is reserved on the node, and pods could not share one
        container["ports"] = [{"name": contract.PORT_STATUS_NAME, "containerPort": port}]
    policy = wanted.image_pull_policy or default_pull_policy
    if policy:
        container["imagePullPolicy"] = str(policy)
    env_from = _sources_of_sub_paths(trainer, mounts=mounts)
    env_from += [dict(source) for source in wanted.env_from]
    store = spec.checkpoint.store
    if store is not None and store.credentials_secret:
        env_from.insert(0, {"secretRef": {"name": store.credentials_secret}})
        # Also as files: a changed Secret reaches them, and never a running environment.
        container["volumeMounts"].append(
            {
                "name": contract.VOLUME_CREDENTIALS,
                "mountPath": contract.MOUNT_CREDENTIALS,
                "readOnly": True,
            }
        )
    if store is not None and store.ca_bundle:
        container["volumeMounts"].append(
            {"name": contract.VOLUME_CA, "mountPath": contract.MOUNT_CA, "readOnly": True}
        )
    if env_from:
        container["envFrom"] = env_from
    return container


def _environment(
    spec: JobSpec,
    *,
    trainer: Mapping[str, Any],
    mounts: Sequence[Manifest],
    config: wire.SidecarConfig,
) -> list[Manifest]:
    facts = {
        contract.ENV_POD_UID: "metadata.uid",
        contract.ENV_POD_NAME: "metadata.name",
        contract.ENV_POD_IP: "status.podIP",
        contract.ENV_NODE_NAME: "spec.nodeName",
    }
    ours: list[Manifest] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in facts.items()
    ]
    # `$$` is Kubernetes' way to write a `$` that it must not expand: resumeArgs hold $(RTJ_…).
    text = config.dump_json().replace("$(", "$$(")
    ours.append({"name": contract.ENV_CONFIG, "value": text})
    names = {entry["name"] for entry in ours}
    users = [dict(entry) for entry in spec.sidecar.env if entry.get("name") not in names]
    names |= {entry.get("name") for entry in users}
    needed = _names_of_sub_paths(trainer, mounts=mounts) - names
    # A subPathExpr is expanded from the environment of the container that mounts.
    copied = [dict(e) for e in trainer.get("env") or [] if e.get("name") in needed]
    return [*copied, *users, *ours]


def _names_of_sub_paths(trainer: Mapping[str, Any], *, mounts: Sequence[Manifest]) -> set[str]:
    """Variables that the mounts' paths are made of, and those that these are made of."""
    values = {entry.get("name"): str(entry.get("value", "")) for entry in trainer.get("env") or []}
    found: set[str] = set()
    queue = _names_in(" ".join(str(mount.get("subPathExpr", "")) for mount in mounts))
    while queue:
        name = queue.pop()
        found.add(name)
        queue |= _names_in(values.get(name, "")) - found
    return found


def _names_in(text: str) -> set[str]:
    return set(re.findall(r"\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)", text))


def _sources_of_sub_paths(
    trainer: Mapping[str, Any], *, mounts: Sequence[Manifest]
) -> list[Manifest]:
    """The trainer's `envFrom` where a path is made of a variable that only it can hold."""
    stated = {entry.get("name") for entry in trainer.get("env") or []}
    if _names_of_sub_paths(trainer, mounts=mounts) <= stated:
        return []
    return [dict(source) for source in trainer.get("envFrom") or []]


def _resources(
    spec: JobSpec, *, pod: Mapping[str, Any], default: Mapping[str, Any] | None, in_memory: float
) -> Manifest:
    """What the user stated, as it is; a default with room for what is written into memory."""
    if spec.sidecar.resources is not None:
        limits = dict(spec.sidecar.resources.limits)
        requests = {**limits, **spec.sidecar.resources.requests}
        return {"limits": limits, "requests": requests}
    kind = default or (GUARANTEED if is_guaranteed(pod) else BURSTABLE)
    found = {key: dict(value) for key, value in kind.items()}
    if 0 < in_memory < inf:
        for part in found.values():
            own = parsed(part.get("memory"))
            if own is not None:
                part["memory"] = mebibytes(own + in_memory)
    disk = disk_request(spec.checkpoint.local, pod=pod)
    return {**found, "requests": {**disk, **found.get("requests", {})}} if disk else found


def memory_warning(
    spec: JobSpec, *, pod: Mapping[str, Any], mounts: Sequence[Mapping[str, Any]]
) -> str | None:
    """Why a restore into a memory-backed directory may kill the sidecar, with the remedy."""
    in_memory = memory_bytes(pod, mounts)
    if in_memory == inf:
        return (
            f"spec.checkpoint.path {spec.checkpoint.path} lies on an emptyDir with medium Memory "
            "and no sizeLimit: what the sidecar restores there counts against its own memory "
            "limit, which cannot be chosen. State emptyDir.sizeLimit, or "
            "spec.sidecar.resources.limits.memory."
        )
    stated = spec.sidecar.resources.limits if spec.sidecar.resources is not None else {}
    limit = parsed(stated.get("memory"))
    if limit is None or limit >= in_memory:
        return None
    return (
        f"spec.sidecar.resources.limits.memory is {stated['memory']}, less than the memory-backed "
        f"volume under spec.checkpoint.path may hold ({mebibytes(in_memory)}): a restore there "
        "would kill the sidecar. Raise it, or lower the volume's sizeLimit."
    )


def is_guaranteed(pod: Mapping[str, Any]) -> bool:
    """Whether the template alone makes a pod of QoS class Guaranteed (Kubernetes' rule)."""
    containers = [*pod["containers"], *(pod.get("initContainers") or [])]
    for container in containers:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        requests = resources.get("requests") or {}
        for name in ("cpu", "memory"):
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                return False
    return True


def _security_context(*, pod: Mapping[str, Any], trainer: Mapping[str, Any]) -> Manifest:
    of_pod = pod.get("securityContext") or {}
    of_trainer = trainer.get("securityContext") or {}
    user = of_trainer.get("runAsUser", of_pod.get("runAsUser"))
    group = of_trainer.get("runAsGroup", of_pod.get("runAsGroup"))
    context: Manifest = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {"drop": ["ALL"]},
    }
    if of_trainer.get("seLinuxOptions"):
        # Files carry the label of who wrote them.
        context["seLinuxOptions"] = dict(of_trainer["seLinuxOptions"])
    if user:
        context["runAsUser"] = user
        context["runAsNonRoot"] = True
        if group is not None:
            context["runAsGroup"] = group
        return context
    # The trainer's user is its image's: unknown here. Files are handed to it by its number.
    context |= {"runAsUser": 0, "runAsGroup": group or 0, "runAsNonRoot": False}
    context["capabilities"]["add"] = list(FILE_CAPABILITIES)
    return context
