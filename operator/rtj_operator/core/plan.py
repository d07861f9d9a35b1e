"""What one pass wants done. The shell carries it out in the order deletes, creates, patches, the
job's own deletion, status, notes, and runs the job again at once after any pass that was not
empty.

A plan holds either a status (a decision, or a refresh of what is shown) or actions (converging
the world to recorded decisions), never both. Must never hold a manifest: the shell asks
`core.pods` for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rtj_api.reasons import Reason
from rtj_api.status import Status
from rtj_api.wire import Directive


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePod:
    """Make rank `rank`'s pod, named by contract.pod_name(…, made_in=made_in). AlreadyExists with
    our job's UID is success."""

    rank: int
    made_in: int
    name: str
    avoid_nodes: tuple[str, ...] = ()  # by node name: see core.avoid.keep_off
    shun_nodes: tuple[str, ...] = ()  # … core.avoid.shun
    group_since: int | None = None  # attempt in which its group entered the queue


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSpare:
    """Make spare `spare`'s pod, named by contract.spare_name(…); else as CreatePod."""

    spare: int
    made_in: int
    name: str
    shun_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod:
    """Delete with a UID precondition; 404 and a different UID are success.

    `grace_seconds` None means the pod's own; `force` means grace 0: only for a pod whose node is
    lost, since it removes the object without waiting for the kubelet.
    """

    name: str
    uid: str
    force: bool = False
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchDirective:
    """Write the annotation contract.ANNOTATION_DIRECTIVE, guarded by `resource_version`; with
    `labels_rank` also the labels, in the same write: a spare's pod that takes this rank."""

    pod: str
    uid: str
    resource_version: str
    directive: Directive
    labels_rank: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FreePod:
    """Take the queue's finalizer off a pod that was deleted and has ended, guarded by
    `resource_version`. 404 is success."""

    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteJob:
    """Delete the job itself, as exactly the object that was seen."""

    uid: str
    resource_version: str


Action = CreatePod | CreateSpare | DeletePod | FreePod | PatchDirective | DeleteJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An Event on the job, posted only after the plan's status write succeeded."""

    type: str  # Normal | Warning
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The outcome of `decide`. `rule`, `why` and `evidence` are for the one log line a decision."""

    rule: str
    why: str
    actions: tuple[Action, ...] = ()
    status: Status | None = None  # to be PUT to /status with the observation's resourceVersion
    notes: tuple[Note, ...] = ()
    wake_at: float | None = None  # look again then, if nothing happens before
    evidence: Mapping[str, Any] = field(default_factory=dict)  # JSON-ready

    def __post_init__(self) -> None:
        if self.actions and self.status is not None:
            raise ValueError(f"rule {self.rule} both decides and acts")

    @property
    def is_empty(self) -> bool:
        """Nothing to write: the fixed point, until `wake_at` or a hint."""
        return not self.actions and self.status is None
