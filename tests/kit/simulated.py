"""A simulated cluster, store and operator with a fake clock: the whole loop without any I/O.

`World` is what exists (API objects, nodes, the store) and moves by `tick`; `Operator` observes it,
decides and applies, one guarded write at a time, and can be made to crash before any write.
The world itself checks the laws: a broken one raises `LawBroken`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from rtj_api import contract, wire
from rtj_api.reasons import Reason
from rtj_api.rules.hang import Standing
from rtj_api.status import Status
from rtj_api.wire import TrainerState
from rtj_operator.core.node_ledger import NodeLedger, with_marks
from rtj_operator.core.node_marks import marks_of
from rtj_operator.core.observed import (
    JobSpec,
    Observed,
    PodView,
    SpecProblem,
)
from rtj_operator.core.plan import (
    CreatePod,
    CreateSpare,
    DeleteJob,
    DeletePod,
    FreePod,
    PatchDirective,
)
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.records import MarkKind

from kit import (
    simulated_laws,
    simulated_nodes,
    simulated_queue,
    simulated_training,
    simulated_views,
)
from kit.simulated_laws import LawBroken
from kit.simulated_nodes import TICK
from kit.simulated_pod import STEP_SECONDS, UPLOAD_SECONDS, Pod
from kit.simulated_queue import Queue
from kit.simulated_store import Store
from kit.simulated_store_mode import Agreement
from kit.simulated_trouble import Trouble


class Conflict(Exception):
    """409: a guarded write lost."""


class Crash(Exception):
    """The operator died before this write."""


class ServerError(Exception):
    """5xx: the write was not done, or was and nobody said so."""


@dataclass
class Node:
    name: str
    gpus: int = 2
    alive: bool = True
    cut: bool = False
    exists: bool = True
    lease_at: float = 0.0
    silent_since: float | None = None
    skew: float = 0.0  # seconds that its clock is ahead
    troubles: tuple[str, ...] = ()  # what its object says against it
    taints: tuple[str, ...] = ()  # key:effect
    tainted_at: dict[str, float] = field(default_factory=dict)  # as it was first looked at

    @property
    def linked(self) -> bool:
        return self.exists and self.alive and not self.cut


@dataclass
class World:
    """Everything outside the operator."""

    spec: JobSpec
    now: float = 1000.0
    total_steps: int = 1_000_000
    save_every: int = 4
    layout: str | None = None  # of the saves
    chunk_steps: int | None = None  # a trainer makes so many steps and ends with 0
    lasting_ranks: frozenset[int] = frozenset()  # their trainers never end by themselves
    victims_exit_after: float | None = 5.0
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)  # API objects by name
    ghosts: list[Pod] = field(default_factory=list)  # force-deleted, their node may still run them
    older: list[PodView] = field(default_factory=list)
    store: Store = field(default_factory=Store)
    queue: Queue | None = None  # Kueue, for a job with scheduling.gang: kueue
    trouble: Trouble = field(default_factory=Trouble)
    created_at: float = 998.0  # the job
    job_uid: str = "abcd0000-0000-0000-0000-000000000001"
    job_rv: int = 1
    generation: int = 1
    deleting: bool = False
    gone: bool = False  # the job was deleted, by its time to live
    problem: SpecProblem | None = None
    request: wire.Request | None = None
    status: dict[str, Any] = field(default_factory=dict)
    hint: bool = True
    uids: int = 0
    trainer_starts: dict[tuple[int, int, str], int] = field(default_factory=dict)
    allow_scratch: bool = False  # the test gave its consent to step 0
    ignores_stop: bool = False  # trainers that do not obey a stop step, whatever the spec says
    deaf_to_stop: frozenset[int] = frozenset()  # ranks to which no stop step gets through
    save_seconds: float = 0.5
    step_seconds: float = STEP_SECONDS
    upload_seconds: float = UPLOAD_SECONDS
    api_down: bool = False  # for everybody
    deaf: bool = False  # the operator hears no report; pods hear each other
    deaf_ranks: frozenset[int] = frozenset()  # … of these ranks
    node_ledger: NodeLedger = field(default_factory=NodeLedger)
    agreements: dict[int, Agreement] = field(default_factory=dict)  # by attempt, in the store
    gate: Callable[[str], None] = lambda what: None
    after: Callable[[str], None] = lambda what: None  # a write was done, its answer not heard
    started: set[int] = field(default_factory=set)  # attempts that passed the point of no return
    writes: int = 0
    _parsed: tuple[dict[str, Any], Status] | None = None

    def __post_init__(self) -> None:
        self.store.clock = lambda: self.now
        self.store.job_uid, self.store.world_size = self.job_uid, self.spec.replicas
        self.store.layout = self.layout or self.store.layout
        if not self.nodes:
            for i in range(self.spec.replicas + 2):
                self.nodes[f"node{i}"] = Node(name=f"node{i}", gpus=1, lease_at=self.now)

    # --- handles for tests ----------------------------------------------------------------------

    @property
    def state(self) -> Status:
        if self._parsed is None or self._parsed[0] is not self.status:
            self._parsed = (self.status, Status.model_validate(self.status))
        return self._parsed[1]

    def pod_of(self, rank: int) -> Pod:
        """The rank's own pod by the recorded placements."""
        return self.pods[simulated_laws.own_name(self, rank)]

    def spare(self) -> Pod | None:
        """One that waits for a rank."""
        waiting = [p for p in self.pods.values() if p.waits]
        return min(waiting, key=lambda p: p.name, default=None)

    def touch(self, pod: Pod | None = None) -> None:
        self.hint = True
        if pod is not None:
            self.uids += 1
            pod.rv = self.uids

    def kill_trainer(self, rank: int, *, code: int = -9) -> None:
        pod = self.pod_of(rank)
        if pod.trainer is not None and pod.trainer.state == TrainerState.RUNNING:
            pod.trainer.end(now=self.now, code=code)
            pod.change()
            self.hint = True

    def hang_trainer(self, rank: int, *, standing: Standing = Standing.STOPPED) -> None:
        """It gives no sign of life from now on, and the others wait for it."""
        trainer = self.pod_of(rank).trainer
        if trainer is not None:
            trainer.hung = standing

    def oom_container(self, rank: int, *, down: float = 1.0) -> None:
        pod = self.pod_of(rank)
        pod.container_ended_at = float(int(self.now))
        pod.container_down_until = self.now + down
        pod.container_exit = (137, "OOMKilled")
        self.touch(pod)

    def kill_sidecar(self, rank: int, *, down: float = 1.0) -> None:
        pod = self.pod_of(rank)
        pod.sidecar_down_until = self.now + down
        pod.sidecar_restarts += 1
        self.touch(pod)

    def delete_pod(self, name: str, *, disruption: str | None = None) -> None:
        pod = self.pods[name]
        if pod.deleting_since is None:
            pod.deleting_since = self.now
            grace = self.spec.trainer_grace_seconds + self.spec.drain_seconds
            pod.deadline = self.now + grace
            pod.disruption = disruption
            self.touch(pod)

    def kill_node(self, name: str) -> None:
        self.nodes[name].alive = False
        self.nodes[name].silent_since = self.now

    def cut_node(self, name: str) -> None:
        self.nodes[name].cut = True
        self.nodes[name].silent_since = self.now

    def heal_node(self, name: str) -> None:
        node = self.nodes[name]
        if not node.alive:
            for pod in [*self.pods.values(), *self.ghosts]:
                if pod.node == name and pod.trainer is not None:
                    pod.trainer.end(now=self.now, code=-9)
                    pod.trainer.container_restarted = True
        node.alive, node.cut, node.silent_since = True, False, None
        node.lease_at = self.now
        self.hint = True

    def corrupt(self, name: str) -> None:
        """The save is damaged in the store and in every pod; the sidecars will find it so."""
        self.store.condemn(name, kind=MarkKind.INVALID, reason=Reason.CHECKPOINT_CORRUPT)
        for pod in self.pods.values():
            pod.pinned = [n for n in pod.pinned if n != name]
            pod.change()
        self.hint = True

    def change_spec(self, **fields: Any) -> None:
        self.spec = replace(self.spec, **fields)
        self.generation += 1
        self.job_rv += 1
        self.hint = True

    # --- what moves by itself -------------------------------------------------------------------

    def tick(self) -> None:
        self.now = round(self.now + TICK, 3)
        for node in self.nodes.values():
            if node.linked and not self.api_down and self.now - node.lease_at >= 10:
                node.lease_at = self.now
        if not self.api_down:
            simulated_queue.reconcile(self)
            simulated_nodes.schedule(self)
        before = {p.uid: (p.sequence, p.boot) for p in self.pods.values()}
        for pod in [*self.pods.values(), *self.ghosts]:
            node = self.nodes.get(pod.node or "")
            if node is not None and node.alive and node.exists:
                simulated_nodes.kubelet(self, pod)
        simulated_training.train(self)
        for pod in self.pods.values():
            self._listen(pod)
            if before.get(pod.uid) != (pod.sequence, pod.boot):
                self.hint = True
        if not self.api_down:
            simulated_nodes.collect(self)

    def candidates(self, pod: Pod) -> list[wire.Candidate]:
        """Newest first, as rank 0's sidecar would list them: the store's, then its own pins."""
        listed = self.store.candidates() if pod.listed else []
        known = {c.name for c in listed}
        local = [
            wire.Candidate(
                name=name, step=keys.step_in(name), durable=False, needs=[0], layout=self.layout
            )
            for name in pod.pinned
            if name not in known and not (pod.listed and self.store.bears(name))
        ]
        return sorted([*listed, *local], key=lambda c: (c.step or 0, c.name), reverse=True)

    def _listen(self, pod: Pod) -> None:
        """The operator's poller: what it has last heard of this pod."""
        is_deaf = self.deaf or pod.rank in self.deaf_ranks
        if pod.sidecar_up and pod.ip is not None and self.is_linked(pod) and not is_deaf:
            old = pod.last_report
            if old is None or (old.boot_id, old.sequence) != (f"b{pod.boot}", pod.sequence):
                said = simulated_views.shifted(pod.report(self), by=self.nodes[pod.node or ""].skew)
                pod.last_report, pod.received_at = said, self.now
            pod.last_contact, pod.lost_at = self.now, None
            return
        is_new = pod.last_contact is not None and pod.lost_at is None
        if is_new and self.now >= (pod.last_contact or 0) + 5:
            pod.lost_at = self.now
            self.hint = True

    def is_linked(self, pod: Pod) -> bool:
        node = self.nodes.get(pod.node or "")
        return node is not None and node.linked

    def reachable_pods(self) -> list[Pod]:
        return [p for p in self.pods.values() if p.sidecar_up and self.is_linked(p)]

    # --- the API --------------------------------------------------------------------------------

    def _write(self, what: str) -> None:
        self.gate(what)
        self.writes += 1

    def put_status(self, rv: str, status: Status) -> None:
        self._write("status")
        if int(rv) != self.job_rv:
            raise Conflict("the job changed")
        simulated_laws.check_status(self, self.state, status)
        if status.is_started:
            self.started.add(status.attempt)
        self.job_rv += 1
        self.status = status.dump()
        self.hint = True
        self._count_against_nodes()

    def _count_against_nodes(self) -> None:
        job = self.observe().job
        if job is not None:
            marks = marks_of(job, now=self.now)
            self.node_ledger = with_marks(self.node_ledger, marks, now=self.now)

    def create(self, action: CreatePod | CreateSpare) -> None:
        self._write("create")
        simulated_laws.is_decided_first(self, action)
        simulated_laws.has_its_name(self, action)
        if action.name in self.pods:
            return
        self.uids += 1
        spare = action.spare if isinstance(action, CreateSpare) else None
        self.pods[action.name] = Pod(
            name=action.name,
            uid=f"pod-{self.uids}",
            rank=action.rank if isinstance(action, CreatePod) else contract.NO_RANK,
            spare=spare,
            made_in=action.made_in,
            created_at=self.now,
            template_hash=self.spec.template_hash,
            rv=self.uids,
            avoid_nodes=action.avoid_nodes if isinstance(action, CreatePod) else (),
            shun_nodes=action.shun_nodes,
        )
        if isinstance(action, CreatePod):
            simulated_queue.join(self, self.pods[action.name], since=action.group_since)
        self.hint = True

    def delete(self, action: DeletePod) -> None:
        self._write("delete")
        pod = self.pods.get(action.name)
        if pod is None or pod.uid != action.uid:
            return
        if action.force:
            if pod.node is not None and self.is_linked(pod) and pod.phase == "Running":
                raise LawBroken(f"{pod.name} was forced away from a living node")
            if pod not in self.ghosts:
                self.ghosts.append(pod)
            pod.deleting_since = pod.deadline = pod.deleting_since or self.now
            simulated_queue.remove(self, pod)
        else:
            self.delete_pod(action.name)

    def free(self, action: FreePod) -> None:
        self._write("free")
        pod = self.pods.get(action.name)
        if pod is None:
            return
        if pod.uid != action.uid or str(pod.rv) != action.resource_version:
            raise Conflict("the pod changed")
        simulated_queue.free(self, pod)

    def delete_job(self, action: DeleteJob) -> None:
        self._write("delete job")
        if action.uid != self.job_uid or int(action.resource_version) != self.job_rv:
            raise Conflict("the job changed")
        if not self.state.is_terminal or self.pods:
            raise LawBroken("a job was removed before it had ended and its pods were gone")
        self.gone = True

    def patch(self, action: PatchDirective) -> None:
        self._write("patch")
        pod = self.pods.get(action.pod)
        if pod is None or pod.uid != action.uid or str(pod.rv) != action.resource_version:
            raise Conflict("the pod changed")
        simulated_laws.is_decided_first(self, action)
        simulated_laws.check_directive(pod, action.directive)
        if action.labels_rank:
            pod.labelled = action.directive.rank
        pod.directive = wire.Directive.model_validate(action.directive.dump())
        pod.directive_at = self.now
        self.touch(pod)

    def check_start(self, pod: Pod, directive: wire.Directive) -> None:
        """Called when a trainer starts: the laws about starts hold, or LawBroken."""
        simulated_laws.check_start(self, pod, directive)

    def observe(self) -> Observed:
        """What the operator's shell would hand to `decide` now."""
        return simulated_views.observe(self)
