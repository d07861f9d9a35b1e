"""Public reports of other launchers and frameworks, where operator and agent limit what they cost.

The table of all of them is `kit.reports`.
"""

from __future__ import annotations

from kit.scenarios import SCENARIOS, recovers, trains
from kit.scenarios_of_trouble import TROUBLES
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase
from rtj_api.wire import TrainerState
from rtj_operator.core.observed import JobSpec
from rtj_sidecar.runs import keys


def test_a_save_that_loads_and_goes_wrong_soon_after_is_left_at_the_second_time() -> None:
    """NVIDIA/Megatron-LM#5281: 44 times the same checkpoint, the same fault three steps later."""
    op = TROUBLES["trouble_follows_the_save"].run()
    resumed = [record.from_step for record in op.world.state.attempts if record.started]
    (name,) = op.world.store.invalid
    bad = keys.step_in(name)
    assert resumed.count(bad) == 2, resumed
    assert resumed[-1] != bad
    assert op.world.state.phase == JobPhase.RUNNING


def test_saves_that_are_gone_never_mean_random_weights() -> None:
    """dlrover#1065: the tracker file was not there, and training began anew with a warning."""
    op = Operator(World(spec=JobSpec(replicas=2, run_id="ns/gpt", template_hash="h1")))
    trains(op, step=8)
    for save in list(op.world.store.saves):
        op.world.corrupt(save.name)
    for pod in op.world.pods.values():
        pod.pinned.clear()
    op.world.kill_trainer(1, code=1)
    op.run_until(lambda: op.world.state.phase == JobPhase.HELD, within=120)
    starts = op.world.state.starts
    op.run(600)
    assert op.world.state.hold is not None
    assert op.world.state.hold.reason == Reason.NO_VALID_CHECKPOINT
    assert op.world.state.starts == starts, "nothing trains until a person has spoken"


def test_a_trainer_killed_and_back_at_once_counts_against_the_limit() -> None:
    """pytorch#147064: an agent that was back at once bypassed the limit of restarts."""
    op = SCENARIOS["crash_loop"].run()
    status = op.world.state
    assert status.restarts == op.world.spec.max_restarts
    failed = status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == Reason.RESTART_BUDGET_SPENT


def test_after_a_segfault_nobody_waits_at_a_barrier() -> None:
    """pytorch PR#99051: the other nodes held their GPUs for 300 s after one process's death."""
    world = World(
        spec=JobSpec(replicas=2, run_id="ns/gpt", template_hash="h1"), victims_exit_after=None
    )
    op = Operator(world)
    trains(op, step=8)
    died = world.now
    world.kill_trainer(1, code=-11)
    recovers(op, attempt=2)
    assert world.now - died < 10, "simulated seconds, with restoring and a first step"
    trainers = [pod.trainer for pod in world.pods.values()]
    assert all(t is not None and t.state == TrainerState.RUNNING for t in trainers)
    assert {t.attempt for t in trainers if t is not None} == {2}


def test_a_phase_that_never_ends_is_ended() -> None:
    """nccl#2349: a communicator was restored in an endless loop, and nobody said so."""
    op = SCENARIOS["mute_sidecar"].run()
    causes = [record.cause for record in op.world.state.attempts]
    assert Reason.DIRECTIVE_NOT_SEEN in causes
    assert op.world.state.phase == JobPhase.RUNNING
