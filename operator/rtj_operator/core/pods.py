"""The manifest of one rank's pod: the user's template, with a sidecar and a supervisor added.

Pure, plain dicts in and out, so that a field newer than this code passes through unchanged. Pod
names are functions of (job, rank, attempt made in), so a pod made twice by mistake meets 409 and
not a twin. Must never read a Secret's content, and must never give the trainer's container the
store's credentials.
"""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy

from rtj_api import contract, wire
from rtj_api.reasons import Reason
from rtj_api.rules.steering import path_in
from rtj_api.v1alpha1 import CaBundle, JobSpec, Store

from rtj_operator.core import gangs, local_volume, mounts
from rtj_operator.core import template as tpl
from rtj_operator.core.apart import keep_apart, rather_apart
from rtj_operator.core.avoid import keep_off
from rtj_operator.core.mounts import Sharing
from rtj_operator.core.pod_config import desired_config
from rtj_operator.core.pod_facts import (
    Owner,
    Parts,
    PodSettings,
    parts_of,
    status_port,
    trainer_grace_seconds,
)
from rtj_operator.core.probes import quiet_probes
from rtj_operator.core.sidecar import desired_sidecar, memory_warning
from rtj_operator.core.staging import staging_directory
from rtj_operator.core.template import Manifest, Refusal, SpecRefused

# Of spec.checkpoint: read by the operator at a choice, and told to pods by directives.
NOT_OF_A_POD = ("onNoValid", "onExistingRun", "resumeFrom", "takeOver", "interval")
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


_TRIAL = PodSettings(cluster_uid="trial", sidecar_image="trial")


def refusal_of(spec: JobSpec, *, owner: Owner, made_in: int = 0) -> Refusal | None:
    """Why no pod can be made of this spec, or None.

    The template is the user's to shape, and the API keeps fields that it does not know: what is
    of another kind than Kubernetes has it shows only when a pod is made, so one is made for trial.
    """
    try:
        parts_of(spec, owner=owner, made_in=made_in)
        warnings_of(spec)
        pod = desired_pod(spec, owner=owner, rank=0, made_in=made_in, settings=_TRIAL)
        gangs.check(spec)
        gangs.joined(pod, spec, owner=owner, since=None)
        keep_off(pod, ("node",))
    except SpecRefused as error:
        return error.refusal
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return tpl.misshapen(error)
    return None


def warnings_of(spec: JobSpec) -> tuple[Refusal, ...]:
    """What can run and yet works against itself. Raises SpecRefused."""
    pod = tpl.pod_spec(spec.template)
    index = tpl.trainer_index(pod)
    found = [gangs.queued_alone(spec)]
    found.append(tpl.inner_restarts(pod["containers"][index], where=f"containers[{index}]"))
    mount = mounts.checkpoint_mount(pod, path=spec.checkpoint.path)
    local = spec.checkpoint.local
    if mount is None:
        pod = local_volume.with_own_volume(pod, local)
    held = mount.mounts if mount is not None else ({"name": contract.VOLUME_CHECKPOINTS},)
    text = memory_warning(spec, pod=pod, mounts=held)
    found.append(Refusal(Reason.SIDECAR_MEMORY_TOO_SMALL, text) if text else None)
    for text in (
        local_volume.memory_warning(pod=pod, mounts=held, trainer=pod["containers"][index]),
        local_volume.disk_warning(local, pod=pod) if mount is None else None,
    ):
        found.append(Refusal(Reason.LOCAL_SIZE_ABOVE_LIMITS, text) if text else None)
    return tuple(warning for warning in found if warning is not None)


def template_hash(spec: JobSpec) -> str:
    """16 hex of SHA-256 over what the user wrote that shapes a pod.

    Never over a finished pod, so that an upgrade of the operator changes no running one. Only
    what was set counts: a default that a later version adds changes no hash.
    """
    wrote = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    checkpoint = dict(wrote.get("checkpoint") or {})
    for name in NOT_OF_A_POD:
        checkpoint.pop(name, None)
    shape = {
        "template": wrote.get("template"),
        "sidecar": wrote.get("sidecar"),
        "framework": wrote.get("framework"),
        "procsPerReplica": wrote.get("procsPerReplica"),
        "checkpoint": checkpoint,
        **({"outputs": wrote["outputs"]} if wrote.get("outputs") else {}),
        **_source_shape(spec),
        **({"scheduling": wrote["scheduling"]} if wrote.get("scheduling") else {}),
    }
    text = json.dumps(shape, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _source_shape(spec: JobSpec) -> dict[str, str]:
    """The one thing that resumeFrom changes of a pod: a volume that its sidecar would not see."""
    path = path_in(spec.checkpoint.resume_from or "")
    if path is None or tpl.is_within(path, spec.checkpoint.path):
        return {}
    mount = mounts.source_mount(
        tpl.pod_spec(spec.template), resume_from=spec.checkpoint.resume_from
    )
    return {"source": str(mount["mountPath"])} if mount is not None else {}


def desired_pod(
    spec: JobSpec, *, owner: Owner, rank: int, made_in: int, settings: PodSettings
) -> Manifest:
    """The pod of `rank`, as made in attempt `made_in`. Raises SpecRefused."""
    name = contract.pod_name(job=owner.name, rank=rank, made_in=made_in, job_uid=owner.uid)
    parts = parts_of(spec, owner=owner, made_in=made_in)
    port = status_port(spec, owner=owner, rank=rank, made_in=made_in)
    config = desired_config(
        spec, owner=owner, rank=rank, made_in=made_in, port=port, parts=parts, settings=settings
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(
            spec, name, owner=owner, labels=labels_of(rank), made_in=made_in, parts=parts
        ),
        "spec": _pod_spec(spec, parts=parts, config=config, settings=settings),
    }


def desired_spare(
    spec: JobSpec, *, owner: Owner, spare: int, made_in: int, settings: PodSettings
) -> Manifest:
    """A pod that could be any rank's: the same but for its name, its labels and what its sidecar
    is told; rather on a node where no pod of the job is. Raises SpecRefused."""
    name = contract.spare_name(job=owner.name, spare=spare, made_in=made_in, job_uid=owner.uid)
    parts, none = parts_of(spec, owner=owner, made_in=made_in), contract.NO_RANK
    port = status_port(spec, owner=owner, rank=none, made_in=made_in, spare=spare)
    config = desired_config(
        spec,
        owner=owner,
        rank=none,
        spare=spare,
        made_in=made_in,
        port=port,
        parts=parts,
        settings=settings,
    )
    labels = {contract.LABEL_ROLE: contract.ROLE_SPARE}
    pod = _pod_spec(spec, parts=parts, config=config, settings=settings)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(spec, name, owner=owner, labels=labels, made_in=made_in, parts=parts),
        "spec": rather_apart(pod, job=config.job),
    }


def labels_of(rank: int) -> dict[str, str]:
    """What tells that a pod plays this rank."""
    return {contract.LABEL_RANK: str(rank), contract.LABEL_ROLE: contract.ROLE_RANK}


def _metadata(
    spec: JobSpec, name: str, *, owner: Owner, labels: dict[str, str], made_in: int, parts: Parts
) -> Manifest:
    stated = spec.template.get("metadata") or {}
    users = {k: v for k, v in (stated.get("labels") or {}).items() if k != contract.LABEL_RANK}
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": {
            **users,
            contract.LABEL_JOB: owner.name,
            **labels,
        },
        "annotations": {
            # `kubectl logs` and `exec` without -c mean the trainer.
            DEFAULT_CONTAINER: parts.pod["containers"][parts.trainer]["name"],
            **(stated.get("annotations") or {}),
            contract.ANNOTATION_MADE_IN: str(made_in),
            contract.ANNOTATION_TEMPLATE_HASH: template_hash(spec),
            contract.ANNOTATION_STORE_MODE: "true",
        },
        "ownerReferences": owner.references(),
    }


def _pod_spec(
    spec: JobSpec, *, parts: Parts, config: wire.SidecarConfig, settings: PodSettings
) -> Manifest:
    pod: Manifest = deepcopy(dict(parts.pod))
    checkpoint_mounts = (
        [dict(mount) for mount in parts.checkpoint.mounts]
        if parts.checkpoint
        else [{"name": contract.VOLUME_CHECKPOINTS, "mountPath": spec.checkpoint.path}]
    )
    pod["containers"][parts.trainer] = _trainer(
        pod["containers"][parts.trainer],
        extra_mounts=() if parts.checkpoint else tuple(checkpoint_mounts),
        staging=staging_directory(spec, parts.pod["containers"][parts.trainer]),
    )
    if parts.store_mount and parts.store_mount not in checkpoint_mounts:
        checkpoint_mounts.append(dict(parts.store_mount))
    places = {mount["mountPath"] for mount in checkpoint_mounts}
    checkpoint_mounts += [m for m in parts.output_mounts if m["mountPath"] not in places]
    places = {mount["mountPath"] for mount in checkpoint_mounts}
    if parts.source_mount is not None and parts.source_mount["mountPath"] not in places:
        checkpoint_mounts.append(dict(parts.source_mount))
    own = [] if parts.checkpoint else [local_volume.own_volume(spec.checkpoint.local)]
    sidecar = desired_sidecar(
        spec,
        pod={**parts.pod, "volumes": [*(parts.pod.get("volumes") or []), *own]},
        trainer=parts.pod["containers"][parts.trainer],
        mounts=checkpoint_mounts,
        config=config,
        default_image=settings.sidecar_image,
        default_pull_policy=settings.sidecar_image_pull_policy,
        default_resources=settings.sidecar_resources,
    )
    # First of all init containers: the user's own may take long, and fetching overlaps with them.
    pod["initContainers"] = [sidecar, *(pod.get("initContainers") or [])]
    pod["volumes"] = [
        *(pod.get("volumes") or []),
        *_volumes(own=own, store=spec.checkpoint.store),
    ]
    # A container that the kernel killed for memory comes back in the same pod, with its files.
    pod["restartPolicy"] = "OnFailure"
    pod["terminationGracePeriodSeconds"] = trainer_grace_seconds(spec) + spec.sidecar.drain_seconds
    pod.setdefault("automountServiceAccountToken", False)
    many = spec.replicas + spec.recovery.spares > 1
    if parts.checkpoint and parts.checkpoint.sharing is Sharing.NODE and many:
        return keep_apart(pod, job=config.job)
    return pod


def _trainer(
    container: Manifest, *, extra_mounts: tuple[Manifest, ...], staging: str | None
) -> Manifest:
    container["command"] = [contract.SUPERVISE, "--", *container["command"]]
    names = {entry.get("name") for entry in container.get("env") or []}
    ours = {"PYTHONUNBUFFERED": "1", "PET_MAX_RESTARTS": "0"}
    if staging is not None:
        ours["TMPDIR"] = staging
    container["env"] = [
        *(container.get("env") or []),
        *({"name": key, "value": value} for key, value in ours.items() if key not in names),
    ]
    container["volumeMounts"] = [
        *(container.get("volumeMounts") or []),
        {"name": contract.VOLUME_RUN, "mountPath": contract.MOUNT_RUN},
        *extra_mounts,
    ]
    # The supervisor says there how the container ended; both sides rely on the default path.
    container.pop("terminationMessagePath", None)
    quiet_probes(container)
    return container


def _volumes(*, own: list[Manifest], store: Store | None) -> list[Manifest]:
    field = f"metadata.annotations['{contract.ANNOTATION_DIRECTIVE}']"
    directive = {"path": "directive", "fieldRef": {"fieldPath": field}}
    volumes: list[Manifest] = [
        {"name": contract.VOLUME_RUN, "emptyDir": {}},
        {"name": contract.VOLUME_PODINFO, "downwardAPI": {"items": [directive]}},
        *own,
    ]
    if store and store.ca_bundle:
        volumes.append({"name": contract.VOLUME_CA, **_ca_source(store.ca_bundle)})
    if store and store.credentials_secret:
        # Optional: the container's envFrom asks for it already, and says so more plainly.
        source = {"secretName": store.credentials_secret, "optional": True}
        volumes.append({"name": contract.VOLUME_CREDENTIALS, "secret": source})
    return volumes


def _ca_source(bundle: CaBundle) -> Manifest:
    items = [{"key": bundle.key, "path": contract.FILE_CA.rpartition("/")[2]}]
    if bundle.secret:
        return {"secret": {"secretName": bundle.secret, "items": items}}
    return {"configMap": {"name": bundle.config_map, "items": items}}
