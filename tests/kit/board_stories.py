"""A fleet with one job of each fate, for whatever shows dashboards: a quarter of an hour.

The time is simulated. Must never be tuned to make a figure look well: faults come when they come
in a story.
"""

from __future__ import annotations

from rtj_api.status import JobPhase
from rtj_operator.core.observed import JobKey

from kit.board_replay import NAMESPACE, Fleet
from kit.scenarios import reaches, recovers, state, trains
from kit.simulated_operator import Operator

MENDED = JobKey(NAMESPACE, "gpt")  # the one that had every kind of fault and trains on
UNTIL = 800.0  # seconds of the story


def _to_the_end(op: Operator, *, begin: float) -> None:
    op.run(max(0.0, begin + UNTIL - op.world.now))


def mended(op: Operator) -> None:
    """A crash, a dead node, a torn save that is passed over; each time it trains on."""
    begin = op.world.now
    op.run(150)
    op.world.kill_trainer(1, code=-9)
    recovers(op, attempt=2)
    op.run(150)
    op.world.kill_node(op.world.pod_of(1).node or "")
    recovers(op, attempt=3)
    op.run(165)
    for name in [save.name for save in op.world.store.saves[-2:]]:
        op.world.corrupt(name)
    op.world.kill_trainer(0, code=1)
    recovers(op, attempt=4)
    _to_the_end(op, begin=begin)


def healthy(op: Operator) -> None:
    op.run(UNTIL)


def short(op: Operator) -> None:
    begin = op.world.now
    reaches(op, JobPhase.SUCCEEDED, within=UNTIL)
    _to_the_end(op, begin=begin)


def crashing(op: Operator) -> None:
    """Never saves, crashes until its budget is spent."""
    begin = op.world.now
    op.run_until(lambda: state(op).is_started)
    while not state(op).is_terminal:
        attempt = state(op).attempt
        op.run_until(
            lambda a=attempt: state(op).attempt == a and state(op).phase == JobPhase.RUNNING,
            within=600,
        )
        op.run(20)
        op.world.kill_trainer(0, code=-9)
        op.run_until(lambda a=attempt: state(op).attempt > a or state(op).is_terminal)
    _to_the_end(op, begin=begin)


def paused(op: Operator) -> None:
    begin = op.world.now
    op.run(200)
    op.world.change_spec(suspend=True)
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED and not op.world.pods)
    op.run(150)
    op.world.change_spec(suspend=False)
    recovers(op, attempt=2)
    _to_the_end(op, begin=begin)


def held(op: Operator) -> None:
    """Every save of it is torn: a person has to decide."""
    begin = op.world.now
    trains(op, step=60)
    op.run(100)
    for save in list(op.world.store.saves):
        op.world.corrupt(save.name)
    for pod in op.world.pods.values():
        pod.pinned.clear()
    op.world.kill_trainer(1, code=1)
    reaches(op, JobPhase.HELD)
    _to_the_end(op, begin=begin)


def fleet(*, begin: float, every: float = 10.0) -> Fleet:
    """`begin` is the Unix time of the first scrape."""
    made = Fleet(begin=begin, every=every)
    saves = {"save_every": 30}
    made.add(MENDED.name, mended, world=saves, spec={})
    made.add("bert", healthy, world=saves, spec={"replicas": 1})
    made.add("vit", short, world=saves | {"total_steps": 300}, spec={})
    made.add("t5", crashing, world={"save_every": 10_000}, spec={"max_restarts": 4})
    made.add("whisper", paused, world=saves, spec={})
    made.add("llama", held, world=saves, spec={})
    return made
