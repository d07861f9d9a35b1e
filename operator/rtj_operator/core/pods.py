"""The manifest of one rank's pod: the user's template, with a sidecar and a supervisor added.

Pure, plain dicts in and out, so that a field newer than this code passes through unchanged. Pod
names are functions of (job, rank, attempt made in), so a pod made twice by mistake meets 409 and
not a twin. Must never read a Secret's content, and must never give the trainer's container the
store's credentials.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from rtj_api import contract, wire
from rtj_api.reasons import Reason
from rtj_api.rules.steering import masked, path_in
from rtj_api.v1alpha1 import BestMode, CaBundle, JobSpec, Retention, Store, Thin

from rtj_operator.core import mounts, ports, quantities, without_store
from rtj_operator.core import template as tpl
from rtj_operator.core.apart import keep_apart
from rtj_operator.core.avoid import keep_off
from rtj_operator.core.mounts import Sharing
from rtj_operator.core.probes import post_start, quiet_probes
from rtj_operator.core.sidecar import desired_sidecar, memory_warning
from rtj_operator.core.staging import staging_directory
from rtj_operator.core.template import Manifest, Refusal, SpecRefused

MAX_WORDS, MAX_WORD = 64, 256
DEFAULT_GRACE_SECONDS = 30  # of Kubernetes
# Of spec.checkpoint: read by the operator at a choice, and told to pods by directives.
NOT_OF_A_POD = ("onNoValid", "onExistingRun", "resumeFrom", "takeOver")
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The job that a pod belongs to."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What the operator's own configuration adds to every pod."""

    cluster_uid: str  # UID of the namespace kube-system
    sidecar_image: str
    sidecar_image_pull_policy: str | None = None
    sidecar_resources: Mapping[str, Any] | None = None


_TRIAL = PodSettings(cluster_uid="trial", sidecar_image="trial")


def refusal_of(spec: JobSpec, *, owner: Owner, made_in: int = 0) -> Refusal | None:
    """Why no pod can be made of this spec, or None.

    The template is the user's to shape, and the API keeps fields that it does not know: what is
    of another kind than Kubernetes has it shows only when a pod is made, so one is made for trial.
    """
    try:
        _parts(spec, owner=owner, made_in=made_in)
        warnings_of(spec)
        pod = desired_pod(spec, owner=owner, rank=0, made_in=made_in, settings=_TRIAL)
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
    found = [tpl.inner_restarts(pod["containers"][index], where=f"containers[{index}]")]
    mount = mounts.checkpoint_mount(pod, path=spec.checkpoint.path)
    if mount is not None:
        text = memory_warning(spec, pod=pod, mounts=mount.mounts)
        found.append(Refusal(Reason.SIDECAR_MEMORY_TOO_SMALL, text) if text else None)
    return tuple(warning for warning in found if warning is not None)


def sharing(spec: JobSpec) -> Sharing:
    """Who else can write a rank's checkpoint directory. Raises SpecRefused."""
    mount = mounts.checkpoint_mount(tpl.pod_spec(spec.template), path=spec.checkpoint.path)
    return mount.sharing if mount is not None else Sharing.POD


def is_shared(spec: JobSpec, kind: Sharing) -> bool:
    """Whether several ranks write one directory."""
    return kind is Sharing.ALL and spec.replicas > 1


def is_fenced(kind: Sharing) -> bool:
    """Whether a pod that runs on another node can write a rank's directory."""
    return kind in (Sharing.ALL, Sharing.RANK)


def trainer_grace_seconds(spec: JobSpec) -> int:
    """The template's own grace, in seconds: what the trainer gets between SIGTERM and SIGKILL."""
    grace = (spec.template.get("spec") or {}).get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_SECONDS if grace is None else int(grace)


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


def run_id(spec: JobSpec, *, owner: Owner) -> str:
    return spec.checkpoint.run_id or f"{owner.namespace}/{owner.name}"


def status_port(spec: JobSpec, *, owner: Owner, rank: int, made_in: int) -> int:
    """Port of the sidecar's HTTP server."""
    if not is_on_host(spec):
        return contract.PORT_STATUS
    return ports.status_port(owner.uid, rank=rank, made_in=made_in, replicas=spec.replicas)


def is_on_host(spec: JobSpec) -> bool:
    """Whether the pods share their nodes' addresses and ports."""
    return bool((spec.template.get("spec") or {}).get("hostNetwork"))


def desired_pod(
    spec: JobSpec, *, owner: Owner, rank: int, made_in: int, settings: PodSettings
) -> Manifest:
    """The pod of `rank`, as made in attempt `made_in`. Raises SpecRefused."""
    parts = _parts(spec, owner=owner, made_in=made_in)
    port = status_port(spec, owner=owner, rank=rank, made_in=made_in)
    config = _config(
        spec, owner=owner, rank=rank, made_in=made_in, port=port, parts=parts, settings=settings
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(spec, owner=owner, rank=rank, made_in=made_in, parts=parts),
        "spec": _pod_spec(spec, parts=parts, config=config, settings=settings),
    }


@dataclass(frozen=True, slots=True)
class _Parts:
    """What was read of the template, checked."""

    pod: Mapping[str, Any]
    trainer: int  # index of the container
    checkpoint: mounts.CheckpointMount | None
    store_mount: Manifest | None  # of a file:// store
    output_mounts: tuple[Manifest, ...]
    source_mount: Manifest | None  # of a directory to resume from
    procs: int


def _parts(spec: JobSpec, *, owner: Owner, made_in: int) -> _Parts:
    tpl.check_name(owner.name, replicas=spec.replicas, made_in=made_in)
    pod = tpl.pod_spec(spec.template)
    tpl.check_template(pod)
    index = tpl.trainer_index(pod)
    checkpoint = mounts.checkpoint_mount(pod, path=spec.checkpoint.path)
    store = spec.checkpoint.store
    if store is None:
        without_store.check(checkpoint, path=spec.checkpoint.path)
    return _Parts(
        pod=pod,
        trainer=index,
        checkpoint=checkpoint,
        store_mount=mounts.store_mount(pod, url=store.url if store else None),
        output_mounts=mounts.output_mounts(
            pod,
            outputs=[p for p in spec.outputs if not tpl.is_within(p, spec.checkpoint.path)],
        ),
        source_mount=mounts.source_mount(pod, resume_from=spec.checkpoint.resume_from),
        procs=spec.procs_per_replica or tpl.gpu_limit(pod["containers"][index]),
    )


def _metadata(spec: JobSpec, *, owner: Owner, rank: int, made_in: int, parts: _Parts) -> Manifest:
    stated = spec.template.get("metadata") or {}
    return {
        "name": contract.pod_name(job=owner.name, rank=rank, made_in=made_in, job_uid=owner.uid),
        "namespace": owner.namespace,
        "labels": {
            **(stated.get("labels") or {}),
            contract.LABEL_JOB: owner.name,
            contract.LABEL_RANK: str(rank),
            contract.LABEL_ROLE: contract.ROLE_RANK,
        },
        "annotations": {
            # `kubectl logs` and `exec` without -c mean the trainer.
            DEFAULT_CONTAINER: parts.pod["containers"][parts.trainer]["name"],
            **(stated.get("annotations") or {}),
            contract.ANNOTATION_MADE_IN: str(made_in),
            contract.ANNOTATION_TEMPLATE_HASH: template_hash(spec),
            contract.ANNOTATION_STORE_MODE: "true",
        },
        "ownerReferences": [
            {
                "apiVersion": contract.API_VERSION,
                "kind": contract.KIND,
                "name": owner.name,
                "uid": owner.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _words(trainer: Manifest) -> list[str]:
    """What the trainer is started with, for people who compare two jobs: no secrets, no essays."""
    words = [*(trainer.get("command") or []), *(trainer.get("args") or [])]
    return [word[:MAX_WORD] for word in masked([str(word) for word in words])[:MAX_WORDS]]


def _config(
    spec: JobSpec,
    *,
    owner: Owner,
    rank: int,
    made_in: int,
    port: int,
    parts: _Parts,
    settings: PodSettings,
) -> wire.SidecarConfig:
    checkpoint, store = spec.checkpoint, spec.checkpoint.store
    kind = parts.checkpoint.sharing if parts.checkpoint is not None else Sharing.POD
    return wire.SidecarConfig(
        cluster_uid=settings.cluster_uid,
        job_uid=owner.uid,
        namespace=owner.namespace,
        job=owner.name,
        rank=rank,
        made_in=made_in,
        image=parts.pod["containers"][parts.trainer].get("image"),
        command=_words(parts.pod["containers"][parts.trainer]),
        framework=spec.framework,
        procs_per_replica=parts.procs,
        procs_stated=spec.procs_per_replica is not None,
        run_id=run_id(spec, owner=owner),
        path=checkpoint.path,
        layout=checkpoint.layout,
        include=list(checkpoint.include),
        store_url=store.url if store else None,
        store_endpoint=store.endpoint if store else None,
        store_region=store.region if store else None,
        store_ca_file=contract.FILE_CA if store and store.ca_bundle else None,
        store_credentials_dir=(
            contract.MOUNT_CREDENTIALS if store and store.credentials_secret else None
        ),
        max_upload_bytes_per_second=(
            quantities.parsed(store.max_upload_bytes_per_second) if store else None
        ),
        resume_args=list(checkpoint.resume_args),
        on_existing_run=checkpoint.on_existing_run,
        drain_seconds=spec.sidecar.drain_seconds,
        trainer_grace_seconds=trainer_grace_seconds(spec),
        mirror=checkpoint.local.mirror,
        keep_last=checkpoint.retention.keep_last,
        keep=_keep(checkpoint.retention, has_store=store is not None),
        status_port=port,
        shared_directory=is_shared(spec, kind),
        fenced_directory=is_fenced(kind),
        keeps_in_directory=store is None,
        pod_volume=parts.checkpoint is None or parts.checkpoint.ends_with_pod,
        pod_volume_bytes=parts.checkpoint.limit_bytes if parts.checkpoint else None,
        outputs=list(spec.outputs),
        rendezvous_told=is_on_host(spec),
        post_start=post_start(parts.pod["containers"][parts.trainer]),
        validation_level=checkpoint.validation.level,
        required_keys=list(checkpoint.validation.required_keys),
    )


def _keep(retention: Retention, *, has_store: bool) -> wire.KeepRules:
    best = retention.keep_best
    # On the volume that the trainer writes to every save that is kept takes its room.
    thin = retention.thin or (Thin.GEOMETRIC if has_store else Thin.NONE)
    return wire.KeepRules(
        every=retention.keep_every,
        best_metric=best.metric if best is not None else None,
        best_highest=best is not None and best.mode == BestMode.MAX,
        best_count=best.count if best is not None else 1,
        thin=thin == Thin.GEOMETRIC,
        archive_after_seconds=retention.archive_after_seconds,
        archive_class=retention.archive_class,
    )


def _pod_spec(
    spec: JobSpec, *, parts: _Parts, config: wire.SidecarConfig, settings: PodSettings
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
    sidecar = desired_sidecar(
        spec,
        pod=parts.pod,
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
        *_volumes(
            own_checkpoints=not parts.checkpoint,
            store=spec.checkpoint.store,
        ),
    ]
    # A container that the kernel killed for memory comes back in the same pod, with its files.
    pod["restartPolicy"] = "OnFailure"
    pod["terminationGracePeriodSeconds"] = trainer_grace_seconds(spec) + spec.sidecar.drain_seconds
    pod.setdefault("automountServiceAccountToken", False)
    if parts.checkpoint and parts.checkpoint.sharing is Sharing.NODE and spec.replicas > 1:
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


def _volumes(*, own_checkpoints: bool, store: Store | None) -> list[Manifest]:
    field = f"metadata.annotations['{contract.ANNOTATION_DIRECTIVE}']"
    directive = {"path": "directive", "fieldRef": {"fieldPath": field}}
    volumes: list[Manifest] = [
        {"name": contract.VOLUME_RUN, "emptyDir": {}},
        {"name": contract.VOLUME_PODINFO, "downwardAPI": {"items": [directive]}},
    ]
    if own_checkpoints:
        volumes.append({"name": contract.VOLUME_CHECKPOINTS, "emptyDir": {}})
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
