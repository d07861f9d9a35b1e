"""`spec` itself: what to train, on how many pods. Must never do I/O."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from rtj_api import template_schema as schema
from rtj_api import validations as v
from rtj_api.api_base import Api
from rtj_api.v1alpha1 import lifetime
from rtj_api.v1alpha1.base import MAX_REPLICAS, PathText
from rtj_api.v1alpha1.checkpoint import Checkpoint
from rtj_api.v1alpha1.elastic import Elastic
from rtj_api.v1alpha1.lifetime import DeadlineSeconds, LifeSeconds, ManagerText, Success
from rtj_api.v1alpha1.recovery import Recovery, SuspendPolicy
from rtj_api.v1alpha1.scheduling import Scheduling
from rtj_api.v1alpha1.sidecar import Sidecar


class Framework(StrEnum):
    """Which rendezvous environment the trainer gets."""

    PYTORCH = "pytorch"
    JAX = "jax"
    NONE = "none"


class JobSpec(Api):
    """What to train, on how many pods, and where its checkpoints go."""

    replicas: int = Field(
        1,
        ge=1,
        le=MAX_REPLICAS,
        description="Pods of the gang; rank 0 to replicas-1. Cannot be changed.",
        json_schema_extra=v.rules(*v.REPLICAS),
    )
    elastic: Elastic | None = Field(
        None,
        description="Absent: the gang trains with all its pods or not at all.",
        json_schema_extra=v.rules(*v.ELASTIC),
    )
    framework: Framework = Field(
        Framework.PYTORCH,
        description=(
            "Which rendezvous environment the trainer gets. pytorch: PET_* for torchrun, and "
            "MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK. jax: the coordinator's "
            "address, process count and id. none: nothing."
        ),
    )
    procs_per_replica: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Trainer processes in a pod (torchrun). Default: the pod's GPU limit, else 1.",
    )
    template: dict[str, Any] = Field(
        description=(
            "The pod to run for each rank, a PodTemplateSpec; fields this version does not know "
            "are kept. The trainer is the container named `trainer`, or the only one."
        ),
        json_schema_extra=schema.POD_TEMPLATE,
    )
    sidecar: Sidecar = Field(default_factory=Sidecar)
    checkpoint: Checkpoint = Field(json_schema_extra=v.rules(*v.CHECKPOINT))
    outputs: tuple[PathText, ...] = Field(
        (),
        max_length=16,
        description=(
            "Further absolute files or directories of the trainer that are shipped to "
            "outputs/ in the store when the job succeeds, such as /results. Everything below "
            "checkpoint.path that is no checkpoint is shipped without being named here. Each must "
            "lie on a volume that the trainer mounts."
        ),
        json_schema_extra=v.rules(*v.OUTPUTS),
    )
    recovery: Recovery = Field(default_factory=Recovery)
    scheduling: Scheduling = Field(
        default_factory=Scheduling, json_schema_extra=v.rules(*v.SCHEDULING)
    )
    suspend: bool = Field(
        False,
        description="Stop training and free the GPUs; false goes on from the newest save.",
    )
    suspend_policy: SuspendPolicy = Field(default_factory=SuspendPolicy)
    success: Success = Field(default_factory=Success)
    active_deadline_seconds: DeadlineSeconds | None = Field(
        None, description=lifetime.ACTIVE_DEADLINE
    )
    start_deadline_seconds: DeadlineSeconds | None = Field(
        None, description=lifetime.START_DEADLINE
    )
    ttl_seconds_after_finished: LifeSeconds | None = Field(None, description=lifetime.TIME_TO_LIVE)
    managed_by: ManagerText | None = Field(
        None, description=lifetime.MANAGED_BY, json_schema_extra=v.rules(*v.MANAGED_BY)
    )
