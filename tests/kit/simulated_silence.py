"""Trainers of a simulated world that give no sign of life, and what their sidecars tell of it.

By the sidecar's own rule of when a silence is told. Says nothing of who is to blame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtj_api import wire
from rtj_api.rules.hang import Standing
from rtj_api.wire import TrainerState
from rtj_sidecar.trainer.life import Life, silence

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod


def is_silent(running: list[Pod]) -> bool:
    """One of them hangs: the others wait for it."""
    return any(pod.trainer is not None and pod.trainer.hung is not None for pod in running)


def stall(pod: Pod, *, now: float) -> wire.StallView | None:
    trainer = pod.trainer
    if trainer is None or trainer.state != TrainerState.RUNNING:
        return None
    since = trainer.updated_at or trainer.started_at
    standing = trainer.hung or Standing.STILL
    told = silence(Life(sign_at=since, fell_at=since), standing=standing, now=now)
    if told is None:
        return None
    # Before its first step nobody knows its pace.
    known = trainer.first_step_at is not None
    pace = wire.PaceView(usual=1.0, longest=1.0) if known else wire.PaceView()
    return wire.StallView(standing=standing, since=since, fell_at=since, pace=pace)


def tell(world: World, running: list[Pod]) -> None:
    """Each sidecar's report changes in the moment from which it tells of the silence."""
    for pod in running:
        trainer = pod.trainer
        if trainer is not None and not trainer.is_told and stall(pod, now=world.now) is not None:
            trainer.is_told = True
            pod.change()
