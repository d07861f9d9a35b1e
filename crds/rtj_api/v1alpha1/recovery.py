"""`recovery` and `suspendPolicy`: how often, how fast and when. Must never do I/O."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rtj_api import validations as v
from rtj_api.api_base import Api
from rtj_api.v1alpha1.failure_rules import FailureRule
from rtj_api.v1alpha1.watching import Hang, Stop, Straggler, VerifyResume


class AvoidNodes(StrEnum):
    """How new pods treat nodes that spoilt trainings of late."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"
    NEVER = "Never"


class Backoff(Api):
    """How restarts without durable progress are spaced: doubling from initial to max.

    The first restart after a newly durable save is not delayed.
    """

    initial_seconds: float = Field(1, ge=0, le=3600, description="Delay of the second restart.")
    max_seconds: float = Field(300, ge=0, le=86_400, description="No restart waits longer.")


class Recovery(Api):
    """How often and how fast to restart."""

    max_restarts: int = Field(
        10,
        ge=0,
        le=1_000_000,
        description=(
            "Restarts allowed without durable progress for causes in the job itself. Each newly "
            "durable save refills it. Causes in the infrastructure (a lost node, an eviction, a "
            "preemption) are free. When it is spent the job fails."
        ),
    )
    backoff: Backoff = Field(default_factory=Backoff, json_schema_extra=v.rules(*v.BACKOFF))
    placement_timeout_seconds: float = Field(
        600,
        ge=10,
        le=604_800,
        description=(
            "How long a part of the gang may hold nodes or quota while the other part does not "
            "get to run. Then all pods are given back, so that a smaller job can run, and made "
            "again later. A gang of which no pod has a node goes on waiting."
        ),
    )
    avoid_nodes: AvoidNodes = Field(
        AvoidNodes.PREFERRED,
        description=(
            "How new pods treat nodes that the operator's node ledger warns of: several faults of "
            "any job within a week, a GPU that failed or is gone, a bad condition. Preferred: they "
            "are placed there only where no other node has room. Required: not before 90 s without "
            "room elsewhere. Never: the ledger is not asked. Nodes that were just found lost or "
            "proved bad for this job are kept off in any case."
        ),
    )
    spares: int = Field(
        0,
        ge=0,
        le=64,
        description=(
            "Pods that are kept ready beside the gang: scheduled, images pulled, sidecar up, the "
            "newest checkpoint on their disks. When a pod or node is lost, one of them takes its "
            "rank at once, and another is made. They hold the same resources as a rank, are made "
            "only when the whole gang trains, and give way when one of its own pods finds no "
            "place. See docs/spares.md."
        ),
    )
    hang: Hang = Field(default_factory=Hang)
    straggler: Straggler = Field(default_factory=Straggler)
    verify_resume: VerifyResume = Field(default_factory=VerifyResume)
    stop: Stop = Field(default_factory=Stop)
    failure_rules: tuple[FailureRule, ...] = Field(
        (),
        max_length=32,
        description=(
            "What your trainer's ends mean, asked in order and before the operator's own tables "
            "(docs/failures.md); the first that fits decides. What Kubernetes itself says of a pod "
            "or a node comes before them."
        ),
        json_schema_extra=v.rules(*v.FAILURE_RULES),
    )


class SuspendPolicy(Api):
    """When a running job is stopped once `suspend` is true."""

    checkpoint_timeout_seconds: float = Field(
        60,
        ge=0,
        le=86_400,
        description=(
            "While the gang trains, its next save is waited for at most so long, so that no work "
            "is lost; 0 stops it at once. With recovery.stop.by a save is asked for within that "
            "time. In any case what was saved is made durable before the pods go."
        ),
    )
