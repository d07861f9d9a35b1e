"""What a spec says of its pods: whose they are, what was read of the template, who shares what.

Pure. Must never make a manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rtj_api import contract
from rtj_api.rules.elastic import Elastic
from rtj_api.v1alpha1 import JobSpec

from rtj_operator.core import elastic_spec, local_volume, mounts, ports, without_rank, without_store
from rtj_operator.core import template as tpl
from rtj_operator.core.mounts import Sharing
from rtj_operator.core.template import Manifest

DEFAULT_GRACE_SECONDS = 30  # of Kubernetes


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The job that a pod, or the gang's group, belongs to."""

    namespace: str
    name: str
    uid: str

    def references(self) -> list[dict[str, Any]]:
        """`metadata.ownerReferences` of what is made for the job: it goes with it."""
        return [
            {
                "apiVersion": contract.API_VERSION,
                "kind": contract.KIND,
                "name": self.name,
                "uid": self.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


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


def run_id(spec: JobSpec, *, owner: Owner) -> str:
    return spec.checkpoint.run_id or f"{owner.namespace}/{owner.name}"


def status_port(
    spec: JobSpec, *, owner: Owner, rank: int, made_in: int, spare: int | None = None
) -> int:
    """Port of the sidecar's HTTP server."""
    if not is_on_host(spec):
        return contract.PORT_STATUS
    place = rank if spare is None else spec.replicas + spare
    places = spec.replicas + elastic_spec.spare_slots(spec)
    return ports.status_port(owner.uid, place=place, made_in=made_in, places=places)


def procs_of(spec: JobSpec, trainer: Mapping[str, Any]) -> int:
    """Trainer processes of a pod."""
    return spec.procs_per_replica or tpl.gpu_limit(trainer)


def elastic(spec: JobSpec) -> Elastic | None:
    """`spec.elastic` for decisions. Raises SpecRefused."""
    pod = tpl.pod_spec(spec.template)
    trainer = pod["containers"][tpl.trainer_index(pod)]
    return elastic_spec.elastic_of(spec, procs=procs_of(spec, trainer))


def is_on_host(spec: JobSpec) -> bool:
    """Whether the pods share their nodes' addresses and ports."""
    return bool((spec.template.get("spec") or {}).get("hostNetwork"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What the operator's own configuration adds to every pod."""

    cluster_uid: str  # UID of the namespace kube-system
    sidecar_image: str
    sidecar_image_pull_policy: str | None = None
    sidecar_resources: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What was read of the template, checked."""

    pod: Mapping[str, Any]
    trainer: int  # index of the container
    checkpoint: mounts.CheckpointMount | None
    store_mount: Manifest | None  # of a file:// store
    output_mounts: tuple[Manifest, ...]
    source_mount: Manifest | None  # of a directory to resume from
    procs: int


def parts_of(spec: JobSpec, *, owner: Owner, made_in: int) -> Parts:
    spares = elastic_spec.spare_slots(spec)
    tpl.check_name(owner.name, replicas=spec.replicas, spares=spares, made_in=made_in)
    pod = tpl.pod_spec(spec.template)
    tpl.check_template(pod)
    if spares:
        without_rank.check(pod)
    index = tpl.trainer_index(pod)
    elastic(spec)
    checkpoint = mounts.checkpoint_mount(pod, path=spec.checkpoint.path)
    local_volume.check(spec.checkpoint.local, mount=checkpoint)
    store = spec.checkpoint.store
    if store is None:
        without_store.check(checkpoint, path=spec.checkpoint.path)
    return Parts(
        pod=pod,
        trainer=index,
        checkpoint=checkpoint,
        store_mount=mounts.store_mount(pod, url=store.url if store else None),
        output_mounts=mounts.output_mounts(
            pod,
            outputs=[p for p in spec.outputs if not tpl.is_within(p, spec.checkpoint.path)],
        ),
        source_mount=mounts.source_mount(pod, resume_from=spec.checkpoint.resume_from),
        procs=procs_of(spec, pod["containers"][index]),
    )
