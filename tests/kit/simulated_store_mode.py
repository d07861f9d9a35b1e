"""Store mode in a simulated pod: the gang agrees through records, the kubelet carries its end.

Follows `rtj_sidecar.agreeing` and `rtj_sidecar.storemode` step by step, with the real rule of
choice and the real last words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.rules import resume as rules
from rtj_api.wire import SidecarPhase, TrainerState
from rtj_sidecar.lastwords import exit_code, last_words

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod

CONTAINER_BACK_SECONDS = 1.0
POD_OVER_SECONDS = 1.0  # from the trainer's container's end to the pod's own phase
RECORDS_SECONDS = 0.5  # until another rank's record is read


@dataclass
class Agreement:
    """The records of one attempt: ready/ of each rank, and what rank 0 adds to its fence."""

    stopped: dict[int, float] = field(default_factory=dict)
    restored: dict[int, float] = field(default_factory=dict)
    drained: dict[int, float] = field(default_factory=dict)
    choice: wire.Resume | None = None
    complete: bool = False


def is_new(pod: Pod, directive: wire.Directive) -> bool:
    """Whether it stands above what the pod has accepted: the store above the same go."""
    key = (directive.attempt, directive.seq)
    if key == pod.journal and directive.through_store is not None:
        return pod.through != directive.attempt
    return key > pod.journal


def take(pod: Pod, world: World, directive: wire.Directive) -> None:
    """A go through the store was accepted."""
    pod.through = directive.attempt
    mine = pod.trainer is not None and pod.trainer.attempt == directive.attempt
    if mine or pod.machine == SidecarPhase.FAILED or pod.machine == SidecarPhase.RESTORED:
        return
    if directive.resume is not None:
        pod.machine, pod.due = SidecarPhase.RESTORING, world.now + 0.4
        return
    pod.stop(world, code=-9)
    pod.machine, pod.due = SidecarPhase.PREPARING, world.now + 0.5


def advance(pod: Pod, world: World) -> None:
    """One step on the way to the go, or of the end."""
    directive = pod.accepted
    if pod.words_at is not None and pod.released and world.now >= pod.words_at + POD_OVER_SECONDS:
        pod.phase = "Succeeded"
        world.touch(pod)
    if directive is None or directive.through_store is None or pod.passed_on >= directive.attempt:
        return
    if pod.machine == SidecarPhase.FAILED:
        _pass_on(pod, world, code=1)
        return
    if pod.machine == SidecarPhase.PREPARED and pod.rank == 0 and not pod.listed:
        _fail(pod, world, Reason.STORE_UNREACHABLE, "the store cannot be reached")
        return
    if not world.store.reachable or not world.is_linked(pod):
        return
    agreed = world.agreements.setdefault(directive.attempt, Agreement())
    if pod.machine == SidecarPhase.PREPARED:
        agreed.stopped.setdefault(pod.rank, world.now)
        if pod.rank == 0 and agreed.choice is None and _all_said(agreed.stopped, world):
            _choose(pod, world, directive, agreed)
        if agreed.choice is not None:
            pod.accepted = directive.model_copy(update={"resume": agreed.choice})
            pod.machine, pod.due = SidecarPhase.RESTORING, world.now + 0.4
    elif pod.machine == SidecarPhase.RESTORED:
        agreed.restored.setdefault(pod.rank, world.now)
        if _all_said(agreed.restored, world):
            pod.begin(world, directive)
    else:
        _look_at_end(pod, world, directive, agreed)


def _all_said(records: dict[int, float], world: World, *, of: int | None = None) -> bool:
    return len(records) == (of or len(world.state.placements)) and all(
        world.now >= at + RECORDS_SECONDS for at in records.values()
    )


def _choose(pod: Pod, world: World, directive: wire.Directive, agreed: Agreement) -> None:
    told = directive.through_store
    assert told is not None
    living = [p for p in world.reachable_pods() if p.journal[0] == directive.attempt]
    chosen = rules.choose(
        rules.Facts(
            run=world.spec.run_id,
            world_size=directive.world_size,
            candidates=world.candidates(pod),
            listed=True,
            pinned={p.rank: p.pinned for p in living},
            urls={},
            ever_durable=told.ever_durable,
            allow_scratch=told.allow_scratch,
            scratch_asked=told.scratch_asked,
        )
    )
    if isinstance(chosen, rules.NoChoice):
        _fail(pod, world, chosen.reason, chosen.message)
    else:
        agreed.choice = chosen.resume


def _fail(pod: Pod, world: World, reason: Reason, message: str) -> None:
    pod.machine = SidecarPhase.FAILED
    pod.problem = wire.Problem(reason=str(reason), message=message, since=world.now)
    pod.change()


def _look_at_end(pod: Pod, world: World, directive: wire.Directive, agreed: Agreement) -> None:
    trainer = pod.trainer
    if trainer is None or trainer.attempt != directive.attempt or pod.deleting_since is not None:
        return
    if trainer.state != TrainerState.EXITED or trainer.container_restarted:
        return
    if code := exit_code(trainer.view()):
        _pass_on(pod, world, code=code)
    elif pod.machine == SidecarPhase.DRAINED:
        agreed.drained.setdefault(pod.rank, world.now)
        told = directive.through_store
        assert told is not None
        mine = {0: agreed.drained[0]} if told.rank_zero_decides and 0 in agreed.drained else None
        is_done = _all_said(mine or agreed.drained, world, of=1 if mine else None)
        newest = world.store.newest()
        reached = max(trainer.step, newest.step if newest else 0)
        if is_done and told.target_step is not None and reached < told.target_step:
            if pod.rank == 0:
                _fail(pod, world, Reason.TARGET_STEP_NOT_REACHED, "too early")
            return
        agreed.complete = agreed.complete or is_done
        if agreed.complete:
            _pass_on(pod, world, code=0)


def _pass_on(pod: Pod, world: World, *, code: int) -> None:
    """The trainer's container ends, and the kubelet starts it again unless all is done."""
    if pod.container_down_until is not None:
        return
    pod.passed_on = pod.journal[0]
    pod.change()
    pod.words, pod.words_at = last_words(pod.report(world)), world.now
    pod.container_exit, pod.container_ended_at = (code, "Error"), world.now
    if code:
        pod.container_down_until = world.now + CONTAINER_BACK_SECONDS
    else:
        pod.released = True  # the pod's phase follows, see `advance`
    world.touch(pod)
