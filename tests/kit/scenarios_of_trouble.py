"""Named scenarios of trouble that comes again: whom the operator finds to blame, and how."""

from __future__ import annotations

from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import JobPhase

from kit.scenarios import Scenario, reaches, recovers, state, trains
from kit.simulated_operator import Operator


def _crash(op: Operator) -> None:
    """One crash that does not come again, so that what was saved is resumed."""
    attempt = state(op).attempt
    op.world.kill_trainer(1, code=-9)
    op.run_until(lambda: state(op).attempt > attempt)


def trouble_follows_the_save(op: Operator) -> None:
    """The newest save is whole and bad: twice the trainer dies two steps after it."""
    trains(op, step=12)
    newest = op.world.store.newest()
    assert newest is not None
    op.world.trouble.saves.add(newest.name)
    _crash(op)
    op.run_until(lambda: (state(op).progress.step or 0) > newest.step + 4, within=600)
    op.run(10)


def trouble_follows_the_program(op: Operator) -> None:
    """A wrong image: from whatever save, the trainer dies two steps after it. No save is lost to
    it, and the right image goes on from the newest."""
    trains(op, step=12)
    op.world.trouble.program = True
    _crash(op)
    reaches(op, JobPhase.HELD)
    assert state(op).hold is not None
    assert state(op).hold.reason == Reason.DETERMINISTIC_FAILURE
    op.run(30)
    op.world.trouble.program = False
    op.world.change_spec(template_hash="h2")
    recovers(op, attempt=state(op).attempt + 1)


def trouble_follows_the_step(op: Operator) -> None:
    """A bad batch: nobody gets past step 55, long after the newest save."""
    op.world.trouble.steps.add(55)
    reaches(op, JobPhase.FAILED)
    op.run(30)


def trouble_follows_the_node(op: Operator) -> None:
    """The trainer on one node crashes in native code, sooner or later; elsewhere it does not."""
    trains(op, step=4)
    op.world.trouble.code = -11
    op.world.trouble.words = "Fatal Python error: Segmentation fault"
    op.world.trouble.nodes.add(op.world.pod_of(1).node or "")
    op.world.trouble.steps_after = 30
    op.run_until(lambda: (state(op).progress.step or 0) > 60, within=900)
    op.run(10)


def gpu_lost(op: Operator) -> None:
    """The last words name a GPU: the rank moves at once, free of charge."""
    trains(op, step=8)
    op.world.trouble.words = "RuntimeError: No CUDA-capable device is detected"
    op.world.trouble.nodes.add(op.world.pod_of(1).node or "")
    recovers(op, attempt=2)
    op.run(10)


def dies_before_its_first_step(op: Operator) -> None:
    """A module is missing: a second look at the same words is enough."""
    op.world.trouble.program = True
    op.world.trouble.steps_after = 1
    op.world.trouble.words = "ModuleNotFoundError: No module named 'flash_attn'"
    reaches(op, JobPhase.FAILED)
    op.run(10)


def bisected(op: Operator) -> None:
    """All saves since step 24 are bad, which one step back does not find. A person asks for it."""
    trains(op, step=40)
    world = op.world
    world.trouble.saves |= {s.name for s in world.store.saves if s.step >= 24}
    _crash(op)
    reaches(op, JobPhase.HELD)
    world.request = wire.Request(id="7", action=wire.RequestAction.BISECT)
    world.hint = True
    op.run_until(lambda: state(op).bisection is not None)
    op.run_until(lambda: state(op).bisection is None, within=900)
    op.run_until(lambda: (state(op).progress.step or 0) > 44, within=900)
    op.run(10)


TROUBLES: dict[str, Scenario] = {
    s.name: s
    for s in (
        Scenario("trouble_follows_the_save", trouble_follows_the_save),
        Scenario("trouble_follows_the_program", trouble_follows_the_program),
        Scenario("trouble_follows_the_step", trouble_follows_the_step, world={"save_every": 25}),
        Scenario("trouble_follows_the_node", trouble_follows_the_node, world={"save_every": 50}),
        Scenario("gpu_lost", gpu_lost),
        Scenario("bisected", bisected),
        Scenario("dies_before_its_first_step", dies_before_its_first_step),
    )
}
