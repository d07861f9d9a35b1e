"""Stop steps in a simulated world: who hears of one, who obeys, and whose SIGTERM waits for it.

As the real sidecar and supervisor do it: a word for a running trainer, once; the SIGTERM of an
ending pod is held back for a moment, and until the word's time where there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtj_api import wire
from rtj_api.wire import Phase, TrainerState

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod

HOLD_SECONDS = 5.0


def hear(pod: Pod, world: World, directive: wire.Directive) -> None:
    trainer = pod.trainer
    if directive.stop_step is None or not world.spec.obeys_stop or trainer is None:
        return
    if pod.rank in world.deaf_to_stop or directive.phase != Phase.GO or trainer.stop is not None:
        return
    if trainer.attempt != directive.attempt or trainer.state != TrainerState.RUNNING:
        return
    trainer.stop = (directive.stop_step, world.now + (directive.stop_within or 0.0))
    pod.change()


def is_reached(pod: Pod, world: World) -> bool:
    """The step that was just made is that one."""
    stop = pod.trainer.stop if pod.trainer is not None else None
    return stop is not None and pod.trainer.step >= stop[0] and not world.ignores_stop


def end_at(pod: Pod, world: World) -> float:
    """When the SIGTERM of an ending pod has ended its trainer."""
    began = pod.deleting_since or world.now
    if not world.spec.obeys_stop:
        return began + 0.5
    stop = pod.trainer.stop if pod.trainer is not None else None
    return (began + HOLD_SECONDS if stop is None else stop[1]) + 0.5


def told(pod: Pod, world: World) -> dict[str, object]:
    """Fields of its report."""
    stop = pod.trainer.stop if pod.trainer is not None else None
    return {
        "can_stop": world.spec.obeys_stop,
        "stop_step": stop[0] if stop is not None else None,
        "term_received_at": pod.deleting_since,
    }
