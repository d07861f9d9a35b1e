"""What the simulated trainers do together: step, save, and wait for the one that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtj_api.wire import TrainerState
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.keys import SaveId

from kit import simulated_holding, simulated_silence, simulated_stop, simulated_trouble

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod


def train(world: World) -> None:
    """A gang steps together: a missing rank stops all others in a collective."""
    groups: dict[int, list[Pod]] = {}
    for pod in [*world.pods.values(), *world.ghosts]:
        if pod.trainer is not None and pod.phase == "Running":
            groups.setdefault(pod.trainer.attempt, []).append(pod)
    for pods in groups.values():
        running = [
            p
            for p in pods
            if p.trainer is not None
            and p.trainer.state == TrainerState.RUNNING
            and p.container_down_until is None
            and world.nodes[p.node or ""].alive
        ]
        sizes = {p.trainer.world for p in running if p.trainer is not None}
        whole = len({p.rank for p in running}) in sizes
        if whole and simulated_silence.is_silent(running):
            simulated_silence.tell(world, running)
            continue
        if whole and all(world.nodes[p.node or ""].linked for p in running):
            _step(world, running)
            continue
        first = min(
            (p.trainer.ended_at for p in pods if p.trainer and p.trainer.ended_at), default=None
        )
        failed = any(p.trainer and p.trainer.exit_code not in (None, 0) for p in pods)
        if first is None or not failed or world.victims_exit_after is None:
            continue
        for pod in running:
            if pod.trainer is not None and world.now >= first + world.victims_exit_after:
                pod.trainer.end(now=world.now, code=-6)
                pod.change()


def _step(world: World, running: list[Pod]) -> None:
    for pod in running:
        trainer = pod.trainer
        assert trainer is not None
        if trainer.next_step_at is None:
            trainer.next_step_at = world.now + world.step_seconds
        if world.now < trainer.next_step_at:
            continue
        trainer.next_step_at = world.now + world.step_seconds
        if trainer.step >= world.total_steps and pod.rank not in world.lasting_ranks:
            trainer.end(now=world.now, code=0)  # it resumed at its end
            pod.change()
            continue
        trainer.step += 1
        trainer.updated_at = world.now
        trainer.first_step_at = trainer.first_step_at or world.now
        pod.change()
        made = trainer.step - trainer.began_at
        is_chunk_done = world.chunk_steps is not None and made >= world.chunk_steps
        done = trainer.step >= world.total_steps or is_chunk_done
        is_asked = simulated_stop.is_reached(pod, world)
        if trainer.step % world.save_every == 0 or done or is_asked:
            _save(world, pod, trainer.step)
        if is_asked:
            trainer.end(now=world.now, code=0, asked=True)
            continue
        if done and pod.rank not in world.lasting_ranks:
            trainer.end(now=world.now, code=0)
        simulated_trouble.strike(world, pod)
        simulated_trouble.mark(world, pod)


def _save(world: World, pod: Pod, step: int) -> None:
    attempt = pod.trainer.attempt if pod.trainer is not None else 0
    everywhere = [*world.pods.values(), *world.ghosts]
    zeros = [p for p in everywhere if p.rank == 0 and p.trainer is not None]
    zero = next((p for p in zeros if p.trainer and p.trainer.attempt == attempt), None)
    fence = zero.fence if zero is not None and zero.fence is not None else 0
    name = keys.save_name(SaveId(fence, step), step)
    pod.pinned = [name, *[n for n in pod.pinned if n != name]][:4]
    if pod.rank == 0:
        simulated_holding.save(pod, world, step, name=name)
