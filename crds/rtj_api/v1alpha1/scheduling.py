"""`scheduling`: who decides when the gang may run, and what it is told.

Fields only; what they do is `rtj_operator.core.gangs` and `core.queueing`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from rtj_api.api_base import Api

QueueName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)
]


class GangScheduler(StrEnum):
    """Who sees to it that all pods of the gang run, or none."""

    NONE = "none"
    KUEUE = "kueue"
    VOLCANO = "volcano"
    SCHEDULER_PLUGINS = "scheduler-plugins"
    NATIVE = "native"


POD_GROUP_SCHEMA: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Scheduling(Api):
    """Queues and gang schedulers. Everything else about placement is in the template."""

    gang: GangScheduler = Field(
        GangScheduler.NONE,
        description=(
            "Who sees to it that all pods run or none. none: whatever schedules pods. kueue: the "
            "pods are a plain pod group in `queue`. volcano, scheduler-plugins: a PodGroup of "
            "theirs and their scheduler. native: a PodGroup of scheduling.k8s.io, Kubernetes 1.36 "
            "and later with the feature gate GenericWorkload."
        ),
    )
    queue: QueueName | None = Field(
        None, description="With kueue the LocalQueue, needed; with volcano the Queue, or default."
    )
    priority_class: QueueName | None = Field(
        None,
        description=(
            "With kueue a WorkloadPriorityClass: the place in the queue and who may be preempted. "
            "With volcano the PriorityClass of the PodGroup. A pod's own priority is "
            "template.spec.priorityClassName, which counts where this is absent."
        ),
    )
    pod_group: dict[str, Any] | None = Field(
        None,
        description=(
            "Further fields of the PodGroup's spec, kept as they are, such as Volcano's "
            "networkTopology. The number of pods is filled in."
        ),
        json_schema_extra=POD_GROUP_SCHEMA,
    )
