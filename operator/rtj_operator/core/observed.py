"""What one pass of the loop saw: frozen views of the job, its pods, their nodes and reports.

`shell.observe` builds these from raw objects; `decide` reads nothing else, so a pass can be
replayed from its `Observed` alone. Unknown is always `None`, never a default that could be taken
for a fact: an unreachable report is not an empty one, a node that could not be read is not a
healthy one. Times are Unix seconds. Must never hold a clock, a raw object or anything mutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.rules.elastic import Elastic
from rtj_api.rules.overrides import FailureRule
from rtj_api.status import Status
from rtj_api.v1alpha1 import Interval

from rtj_operator.core.node_ledger import Advice


@dataclass(frozen=True, slots=True)
class JobKey:
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """Why a spec cannot be run, found by `shell.observe` while it reads the spec.

    `message` names the field and the remedy.
    """

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The part of the user's spec that decisions need (manifests are `core.pods`' affair)."""

    replicas: int
    run_id: str
    template_hash: str  # of the user's template, as it would be annotated on a pod made now
    has_store: bool = True
    store_url: str | None = None  # these three: to name in messages what a user can change
    store_endpoint: str | None = None
    credentials_secret: str | None = None
    shared_directory: bool = False  # several pods write one checkpoint directory
    fenced_directory: bool = False  # a pod of another node can write a rank's directory
    suspend: bool = False
    on_existing_run: str = "Resume"  # checkpoint.onExistingRun
    take_over: str | None = None
    resume_from: str | None = None
    probe: wire.Probe | None = None  # checkpoint.validation.probe
    suspend_wait_seconds: float = 0.0  # suspendPolicy: for the next save, while the gang trains
    placement_seconds: float | None = None  # recovery.placementTimeoutSeconds
    scratch_if_none_valid: bool = False  # checkpoint.onNoValid: StartFromScratch
    obeys_stop: bool = False  # recovery.stop.by is not Nothing
    on_hang: str = "Restart"  # recovery.hang.onHang
    hang_timeout_seconds: float | None = None  # recovery.hang.timeoutSeconds
    on_slow: str = "Report"  # recovery.straggler.onSlow
    on_divergence: str = "RollBack"  # recovery.verifyResume.onDivergence
    failure_rules: tuple[FailureRule, ...] = ()  # recovery.failureRules
    max_restarts: int = 10  # recovery.maxRestarts: without durable progress
    backoff_initial_seconds: float = 1.0
    backoff_max_seconds: float = 300.0
    trainer_grace_seconds: float = 30.0  # terminationGracePeriodSeconds of the user's template
    drain_seconds: float = 300.0
    spares: int = 0  # recovery.spares
    elastic: Elastic | None = None
    avoid_nodes: str = "Preferred"  # recovery.avoidNodes
    gang_scheduler: str = "none"  # scheduling.gang
    queue: str | None = None  # scheduling.queue
    rank_zero_decides: bool = False  # success.ranks: Zero
    target_step: int | None = None  # success.targetStep
    active_deadline_seconds: float | None = None
    start_deadline_seconds: float | None = None
    ttl_seconds_after_finished: float | None = None
    interval: Interval = field(default_factory=Interval)  # checkpoint.interval
    warnings: tuple[SpecProblem, ...] = ()  # it can run, but something in it works against it


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    key: JobKey
    uid: str
    resource_version: str
    generation: int
    deleting: bool
    spec: JobSpec | None  # None only together with `problem`
    status: Status
    leaves_pods: bool = False  # deleted with --cascade=orphan: they are to go on without it
    created_at: float | None = None  # by the API server's clock, whole seconds
    managed_elsewhere: str | None = None  # spec.managedBy, where that is another controller
    problem: SpecProblem | None = None
    request: wire.Request | None = None  # the annotation contract.ANNOTATION_REQUEST
    request_error: str | None = None  # that annotation is there but cannot be read: why
    request_error_id: str | None = None  # … and what tells this unreadable one from another


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEnd:
    """One end of a container, from `state.terminated` or `lastState.terminated`."""

    exit_code: int
    signal: int | None = None
    reason: str | None = None  # Completed | Error | OOMKilled | ContainerCannotRun | …
    message: str | None = None  # the termination message
    finished_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """One container by name; init containers (the sidecar is one) are seen alike."""

    name: str
    running: bool = False
    started_at: float | None = None  # state.running.startedAt
    ready: bool = False
    waiting_reason: str | None = None  # ImagePullBackOff, CrashLoopBackOff, …
    waiting_message: str | None = None
    ended: ContainerEnd | None = None  # state.terminated
    last_end: ContainerEnd | None = None  # lastState.terminated
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod whose controlling ownerReference carries this job's UID (or, in `older_pods`,
    another UID with this job's name)."""

    name: str
    uid: str
    resource_version: str
    rank: int  # label contract.LABEL_RANK; NO_RANK of a spare that has none yet
    made_in: int  # annotation contract.ANNOTATION_MADE_IN
    created_at: float
    spare: int | None = None  # its number, by its name, whatever rank it has taken since
    node: str | None = None
    ip: str | None = None
    status_port: int | None = None  # of its sidecar's HTTP server, as its own manifest has it
    rendezvous_told: bool = False  # its sidecar takes the rendezvous port from the directive
    phase: str = "Pending"  # Pending | Running | Succeeded | Failed | Unknown
    reason: str | None = None  # status.reason: Evicted, NodeLost, …
    message: str | None = None
    deleting_since: float | None = None  # when deletion was asked for: deletionTimestamp - grace
    deletion_deadline: float | None = None  # deletionTimestamp
    disruption: str | None = None  # reason of condition DisruptionTarget=True
    disruption_message: str | None = None
    scheduled: bool | None = None  # condition PodScheduled
    scheduled_since: float | None = None  # that condition's transition while it is True
    unschedulable_message: str | None = None  # its message while it is False
    unschedulable_since: float | None = None
    trainer: ContainerView | None = None  # None: no status of it yet
    sidecar: ContainerView | None = None
    others: tuple[ContainerView, ...] = ()  # the user's other (init) containers
    directive: wire.Directive | None = (
        None  # as parsed from the annotation; None: none or unreadable
    )
    told_at: float | None = None  # when that was written, by the clock of the operator that did
    key_is_old: bool = False  # what is pushed now, its sidecar would not believe
    template_hash: str | None = None
    has_store_mode: bool = True  # its sidecar can agree with its gang through the store
    gates: tuple[str, ...] = ()  # spec.schedulingGates: none may be left before it is scheduled
    group: str | None = None  # Kueue's label: the pod group that it is counted in
    is_queued: bool = False  # Kueue has taken it: its label of managed pods
    is_kept_by_queue: bool = False  # Kueue's finalizer: the object stays until that is taken off
    ended_by_queue: str | None = None  # what Kueue says of why it ends the pod
    scheduler: str | None = None  # spec.schedulerName
    trouble: str | None = None  # what its node says against its start, from its newest event

    @property
    def is_terminal(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_gated(self) -> bool:
        """The scheduler does not look at it yet."""
        return bool(self.gates) and self.node is None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node that one of the job's pods is bound to. `exists=False` only after a 404."""

    name: str
    exists: bool = True
    ready: bool | None = None  # condition Ready: True, False, or None for Unknown
    not_ready_since: float | None = None  # lastTransitionTime while it is not True
    taints: tuple[str, ...] = ()  # "key:effect"
    tainted_at: Mapping[str, float] = field(default_factory=dict)  # by taint: since when, if known
    lease_renewed_at: float | None = None  # kube-node-lease; None: no Lease seen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    """What is known of one sidecar by its reports. In `Observed.reports` by pod UID.

    A pod that is polled but never answered has an entry with `report=None`.
    """

    report: wire.Report | None
    received_at: float | None  # when this (bootID, sequence) was first seen: unchanged by repeats
    connected: bool  # the long poll is established now
    last_contact: float | None  # last byte from the sidecar, an answer or a keepalive
    polled_since: float | None = None  # when polling of this pod began
    disconnected_since: float | None = None  # set while `connected` is False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The API server refused an action of an earlier pass (advice from the shell's memory)."""

    code: int
    message: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """What Kueue says of the gang's Workload, as long as pods wait in its queue."""

    message: str | None = None  # why it is not admitted yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything `decide` may look at."""

    now: float
    job: JobView | None  # None: the job is gone
    pods: tuple[PodView, ...] = ()
    older_pods: tuple[PodView, ...] = ()  # of an older job of the same name (other UID)
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    reports: Mapping[str, ReportView] = field(default_factory=dict)
    stale_lease_share: float = 0.0  # of all node Leases of the cluster, 0..1
    rejections: Mapping[str, Rejection] = field(default_factory=dict)  # by pod name
    queue: QueueView | None = None  # None: nothing waits, or it could not be read
    node_advice: tuple[Advice, ...] = ()  # nodes of the cluster that new pods had better keep off
    # "<clusterUID>/<jobUID>" of fences held by other jobs -> does that job still exist; absent:
    # not known (another cluster). Needed only for owners named in a report's `fence_owner`.
    owner_lives: Mapping[str, bool] = field(default_factory=dict)

    def report_of(self, pod: PodView) -> wire.Report | None:
        """The newest report that this very pod sent, or None."""
        view = self.reports.get(pod.uid)
        if view is None or view.report is None or view.report.pod_uid != pod.uid:
            return None
        return view.report
