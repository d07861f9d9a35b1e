"""A simulated pod: its containers, its sidecar's machine and its trainer, without any I/O.

Follows the real sidecar's protocol (prepare, restore, go, fast go, stop, release; the journal of
(attempt, seq)) closely enough that `decide` cannot tell the difference. Time comes from the world.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtj_api import contract, wire
from rtj_api.rules.hang import Standing
from rtj_api.wire import Phase, SidecarPhase, TrainerState
from rtj_sidecar.runs.records import Parent

from kit import (
    simulated_holding,
    simulated_silence,
    simulated_stop,
    simulated_store_mode,
    simulated_trouble,
)
from kit.memory_store import Crash
from kit.simulated_store import SCRATCH, Save

if TYPE_CHECKING:
    from kit.simulated import World

SEEN_AFTER = 0.2  # seconds until a patched annotation is read in the pod
STEP_SECONDS = 1.0
UPLOAD_SECONDS = 1.5


@dataclass
class Trainer:
    attempt: int
    step: int
    started_at: float
    world: int  # pods of its gang
    began_at: int = 0  # the step that it resumed from
    tail: list[str] = field(default_factory=list)  # its last words
    state: TrainerState = TrainerState.RUNNING
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    asked: bool = False
    oom: bool = False
    container_restarted: bool = False
    first_step_at: float | None = None
    updated_at: float | None = None
    next_step_at: float | None = None
    hung: Standing | None = None
    is_told: bool = False  # its silence
    stop: tuple[int, float] | None = None  # the stop step that it was told of, and until when

    def end(self, *, now: float, code: int, asked: bool = False) -> None:
        if self.state == TrainerState.RUNNING:
            self.state = TrainerState.EXITED
            self.ended_at = now
            self.exit_code = code
            self.signal = -code if code < 0 else None
            self.asked = asked

    def view(self) -> wire.TrainerView:
        return wire.TrainerView(
            state=self.state,
            attempt=self.attempt,
            started_at=self.started_at,
            ended_at=self.ended_at,
            exit_code=self.exit_code,
            signal=self.signal,
            oom_kills=1 if self.oom else 0,
            asked_to_stop=self.asked,
            container_restarted=self.container_restarted,
            tail=list(self.tail),
        )


@dataclass
class Pod:
    """Also the sidecar: its journal survives `kill_sidecar`, its boot does not."""

    name: str
    uid: str
    rank: int
    made_in: int
    created_at: float
    template_hash: str
    rv: int
    spare: int | None = None
    labelled: int | None = None  # the label bears this rank
    node: str | None = None
    ip: str | None = None
    phase: str = "Pending"
    reason: str | None = None
    message: str | None = None
    disruption: str | None = None
    directive: wire.Directive | None = None
    directive_at: float = 0.0
    deleting_since: float | None = None
    deadline: float | None = None
    unschedulable_since: float | None = None
    image_pullable: bool = True
    scheduled_at: float | None = None
    running_since: float | None = None
    container_down_until: float | None = None
    container_ended_at: float | None = None
    container_exit: tuple[int, str] | None = None
    container_restarts: int = 0
    sidecar_down_until: float | None = None
    sidecar_restarts: int = 0
    released: bool = False
    # the sidecar
    boot: int = 1
    sequence: int = 1
    journal: tuple[int, int] = (0, 0)
    accepted: wire.Directive | None = None
    machine: SidecarPhase = SidecarPhase.IDLE
    due: float | None = None  # when the present stage ends
    fence: int | None = None
    is_claimed: bool = False  # else the number is the one that it will ask for
    parent: Parent = SCRATCH  # what its trainer began from
    listed: bool | None = None
    restored: dict[int, str] = field(default_factory=dict)  # attempt -> save name or "scratch"
    pinned: list[str] = field(default_factory=list)
    problem: wire.Problem | None = None
    trainer: Trainer | None = None
    fetched: str | None = None  # by a spare, ahead
    pending: list[Save] = field(default_factory=list)
    last_contact: float | None = None
    lost_at: float | None = None
    last_report: wire.Report | None = None
    received_at: float | None = None
    avoid_nodes: tuple[str, ...] = ()
    shun_nodes: tuple[str, ...] = ()
    zombie_since: float | None = None  # forced away, and its node is back
    group: str | None = None  # Kueue's pod group
    gated: bool = False
    kept: bool = False  # by Kueue's finalizer
    ended_by_queue: str | None = None
    mute: bool = False  # answers, but takes no directive up
    through: int = 0  # the attempt that goes on through the store
    passed_on: int = 0  # the attempt whose end its container told
    words: str | None = None  # in the termination message of the end at `words_at`
    words_at: float | None = None

    @property
    def waits(self) -> bool:
        """A spare without a rank."""
        return self.rank == contract.NO_RANK

    @property
    def sidecar_up(self) -> bool:
        return self.phase == "Running" and self.sidecar_down_until is None

    def change(self) -> None:
        self.sequence += 1

    # --- the sidecar's machine ------------------------------------------------------------------

    def tick(self, world: World) -> None:
        """One step of everything that happens inside the pod. Its node lives."""
        now = world.now
        if self.sidecar_down_until is not None and now >= self.sidecar_down_until:
            self.sidecar_down_until = None
            self.boot += 1
            self.change()
        if self.container_down_until is not None and now >= self.container_down_until:
            self.container_down_until = None
            self.container_restarts += 1
            if self.trainer is not None and self.trainer.state == TrainerState.RUNNING:
                code = self.container_exit[0] if self.container_exit else 137
                self.trainer.end(now=self.container_ended_at or now, code=-(code - 128))
                self.trainer.container_restarted = True
                self.change()
        if not self.sidecar_up:
            return
        try:
            self._fetch_ahead(world)
            self._take_directive(world)
            self._advance(world)
            simulated_store_mode.advance(self, world)
            simulated_holding.upload(self, world)
        except Crash:
            simulated_holding.die(self, world)

    def _take_directive(self, world: World) -> None:
        directive = self.directive
        if directive is None or self.mute or world.now < self.directive_at + SEEN_AFTER:
            return
        if directive.job_uid != world.job_uid or directive.pod_uid != self.uid:
            return
        simulated_stop.hear(self, world, directive)
        if not simulated_store_mode.is_new(self, directive):
            return
        if self.waits:
            self.rank = directive.rank
        elif directive.rank != self.rank:
            return
        was_failed = self.machine == SidecarPhase.FAILED and directive.attempt == self.journal[0]
        self.journal = (directive.attempt, directive.seq)
        self.accepted = directive
        now = world.now
        if was_failed and directive.through_store is not None:
            self.through = directive.attempt
            return
        self.problem = None
        if self.machine == SidecarPhase.FAILED:
            self.machine = SidecarPhase.IDLE
        if directive.phase == Phase.PREPARE or (directive.phase == Phase.GO and directive.fast):
            self.stop(world, code=-9)
        if directive.phase == Phase.PREPARE:
            self.machine, self.due = SidecarPhase.PREPARING, now + 0.2
        elif directive.phase == Phase.RESTORE:
            self.machine, self.due = SidecarPhase.RESTORING, now + 0.4
        elif directive.through_store is not None and directive.phase == Phase.GO:
            simulated_store_mode.take(self, world, directive)
        elif directive.phase == Phase.GO:
            if directive.fast:
                self._restore(world, directive)
            if self.machine != SidecarPhase.FAILED:
                self.begin(world, directive)
        elif directive.phase == Phase.STOP:
            self.stop(world, code=0, asked=True)
            self.machine, self.due = SidecarPhase.DRAINING, now + 0.2
        elif directive.phase == Phase.RELEASE:
            self.released = True
            self.phase = "Succeeded"
            world.touch(self)
        self.change()

    def stop(self, world: World, *, code: int, asked: bool = False) -> None:
        if self.trainer is not None:
            self.trainer.end(now=world.now, code=code, asked=asked)

    def _advance(self, world: World) -> None:
        has_ended = self.trainer is not None and self.trainer.state == TrainerState.EXITED
        if has_ended and self.machine == SidecarPhase.TRAINING:
            self.machine = SidecarPhase.EXITED
            self.change()
        if self.machine == SidecarPhase.EXITED:
            self.machine = SidecarPhase.DRAINING
            self.change()
        if self.due is not None and world.now < self.due:
            return
        still_asks = self.machine == SidecarPhase.PREPARED and self.listed is False
        if still_asks and world.store.reachable:
            simulated_holding.prepared(self, world)
            self.change()
        if self.machine == SidecarPhase.PREPARED and self.is_claimed and world.store.reachable:
            simulated_holding.complete(self, world)
        if self.machine == SidecarPhase.DRAINING and not self.pending:
            self.machine = SidecarPhase.DRAINED
            self.change()
        if self.due is None or self.accepted is None:
            return
        self.due = None
        if self.machine == SidecarPhase.PREPARING:
            if self.container_down_until is not None:
                self.due = world.now + 0.1
                return
            simulated_holding.prepared(self, world)
        elif self.machine == SidecarPhase.RESTORING:
            self._restore(world, self.accepted)
        self.change()

    def _restore(self, world: World, directive: wire.Directive) -> None:
        resume = directive.resume
        assert resume is not None, "a restore without a choice"
        if resume.scratch:
            simulated_holding.begin_line(self, world, directive)
            self.restored[directive.attempt] = "scratch"
            self.machine = SidecarPhase.RESTORED
            return
        assert resume.name is not None
        available = resume.name in self.pinned or (
            world.store.reachable and world.store.can_restore(resume.name)
        )
        from_peer = any(resume.name in p.pinned for p in world.reachable_pods())
        if not available and not from_peer:
            self.machine = SidecarPhase.FAILED
            self.problem = wire.Problem(
                reason="RestoreFailed",
                message=f"{resume.name} cannot be had from disk, peers or store",
                since=world.now,
                retrying=False,
            )
            return
        if resume.name not in self.pinned:
            self.pinned.insert(0, resume.name)
        simulated_holding.begin_line(self, world, directive)
        self.restored[directive.attempt] = resume.name
        self.machine = SidecarPhase.RESTORED

    def begin(self, world: World, directive: wire.Directive) -> None:
        resume = directive.resume
        assert resume is not None
        step = 0 if resume.scratch else (resume.step or 0)
        world.check_start(self, directive)
        self.trainer = Trainer(
            directive.attempt, step, world.now, world=directive.world_size, began_at=step
        )
        self.machine = SidecarPhase.TRAINING

    def _standby(self) -> wire.StandbyView:
        name = self.fetched
        return wire.StandbyView(spare=self.spare or 0, name=name, whole=name is not None)

    def _fetch_ahead(self, world: World) -> None:
        newest = world.store.newest() if world.store.reachable and self.waits else None
        if newest is not None and self.fetched != newest.name:
            self.fetched = newest.name
            self.change()

    # --- what others see ------------------------------------------------------------------------

    def report(self, world: World) -> wire.Report:
        trainer = self.trainer
        store = world.store
        mine = self.rank == 0
        newest = store.newest()
        progress = wire.ProgressView()
        if trainer is not None and trainer.updated_at is not None:
            progress = wire.ProgressView(
                step=trainer.step,
                source="file",
                first_step_at=trainer.first_step_at,
                updated_at=trainer.updated_at,
                step_seconds=world.trouble.work_seconds(self),
                pace_seconds=world.step_seconds if trainer.step - trainer.began_at >= 3 else None,
            )
        return wire.Report(
            job_uid=world.job_uid,
            pod_uid=self.uid,
            rank=self.rank,
            boot_id=f"b{self.boot}",
            sequence=self.sequence,
            sent_at=world.now,
            attempt=self.journal[0],
            seq=self.journal[1],
            phase=self.machine,
            supervisor_seen=self.container_down_until is None,
            terminating=self.deleting_since is not None,
            trainer=trainer.view() if trainer is not None else wire.TrainerView(),
            problem=self.problem,
            standby=self._standby() if self.waits else None,
            fence=self.fence if mine else None,
            listed=self.listed if mine else None,
            candidates=world.candidates(self) if mine else [],
            found=simulated_trouble.found(world, self),
            pinned=list(self.pinned),
            progress=progress,
            **simulated_stop.told(self, world),
            stall=simulated_silence.stall(self, now=world.now),
            checkpoint=wire.CheckpointView(
                last_saved_step=self.pending[-1].step if self.pending else None,
                last_saved_at=self.pending[-1].written_at if self.pending else None,
                last_durable_step=newest.step if newest and mine else None,
                last_durable_at=newest.done_at if newest and mine else None,
                last_durable_name=newest.name if newest and mine else None,
                valid=len(store.valid()) if mine else 0,
                invalid=len(store.invalid) if mine else 0,
                pending_saves=len(self.pending),
                pending_bytes=1000 * len(self.pending),
                writing_seconds=world.save_seconds,
                upload_bytes=1000,
                upload_seconds=world.upload_seconds,
            ),
        )
