"""Trouble that comes again in a simulated world: with a save, a step, a node or the program itself.

Says only when a trainer dies and what it prints last; who is to blame is for the operator to find.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.rules.suspicion import has_got_past
from rtj_sidecar.runs.records import MarkKind

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod


@dataclass
class Trouble:
    """`saves`: names from which a trainer comes `steps_after` steps far. `steps`: none gets past
    them. `nodes`: no trainer there gets further than `steps_after` steps. `program`: no trainer
    does, wherever. Each of these strikes at rank 1. `slow_nodes`, `slow_ranks`: its own work in a
    step takes twice as long there, which trainers tell with `tells_work`."""

    saves: set[str] = field(default_factory=set)
    steps: set[int] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    program: bool = False
    tells_work: bool = False
    slow_nodes: set[str] = field(default_factory=set)
    slow_ranks: set[int] = field(default_factory=set)
    steps_after: int = 2
    code: int = 1
    words: str = "RuntimeError: it went wrong at element 17"

    def work_seconds(self, pod: Pod) -> float | None:
        """What its trainer tells of its own work in a step; the first steps compile."""
        trainer = pod.trainer
        if not self.tells_work or trainer is None or trainer.step - trainer.began_at < 8:
            return None
        is_slow = pod.node in self.slow_nodes or pod.rank in self.slow_ranks
        return 0.6 if is_slow else 0.3

    def strikes(self, pod: Pod) -> bool:
        trainer = pod.trainer
        if trainer is None or pod.rank != 1:
            return False
        far = trainer.step - trainer.began_at >= self.steps_after
        return (
            trainer.step in self.steps
            or (far and pod.restored.get(trainer.attempt) in self.saves)
            or (far and pod.node in self.nodes)
            or (far and self.program)
        )


def strike(world: World, pod: Pod) -> None:
    """After a step: the trainer ends if its trouble is here."""
    if pod.trainer is None or not world.trouble.strikes(pod):
        return
    pod.trainer.tail = [world.trouble.words]
    pod.trainer.end(now=world.now, code=world.trouble.code)
    pod.change()


def mark(world: World, pod: Pod) -> None:
    """Rank 0's sidecar marks what an older save has proved bad."""
    said = pod.accepted
    if said is None or pod.rank != 0 or pod.trainer is None:
        return
    for suspect in said.suspects:
        if suspect.is_proved or has_got_past(suspect.past_step, pod.report(world)):
            world.store.condemn(suspect.name, kind=MarkKind.POISON, reason=Reason.CHECKPOINT_POISON)


def found(world: World, pod: Pod) -> wire.Found | None:
    """The save that rank 0's sidecar was told to look for, once it is found."""
    wanted = pod.accepted.wanted if pod.accepted is not None else None
    if wanted is None or wanted.value is None or pod.rank != 0:
        return None
    listed = (c for c in world.candidates(pod) if c.name == wanted.value)
    save = next(listed, None) or world.store.by_name(wanted.value)
    if save is not None:
        return wire.Found(asked=wanted.asked, save=save)
    if "/" in wanted.value:
        return None  # another run is still being brought over
    problem = f"there is no save {wanted.value} in this run"
    return wire.Found(asked=wanted.asked, problem=problem)
