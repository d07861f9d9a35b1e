"""What `rtj run` decides when a trainer has ended."""

from __future__ import annotations

import pytest
from rtj_api.rules.resume import Chosen, NoChoice
from rtj_api.wire import Candidate, CheckpointView, Report, TrainerState, TrainerView
from rtj_cli.decisions import Budget, End, Restart, after_end, choice, exit_code, fast_choice


def trainer(code: int | None, **more: object) -> TrainerView:
    return TrainerView(state=TrainerState.EXITED, attempt=1, exit_code=code, **more)  # type: ignore[arg-type]


def report(**fields: object) -> Report:
    base = {"job_uid": "j", "pod_uid": "p", "rank": 0, "boot_id": "b", "sequence": 1, "sent_at": 0}
    return Report(**{**base, **fields})  # type: ignore[arg-type]


def candidate(step: int, **more: object) -> Candidate:
    fields = {"name": f"f1-n{step}-s{step}", "step": step, "durable": True, "full_state": True}
    return Candidate(**{**fields, "needs": [0], **more})  # type: ignore[arg-type]


def test_success_stop_restart() -> None:
    budget = Budget(3)
    assert after_end(trainer(0), stopping=False, budget=budget) == End(
        0, "the trainer finished", success=True
    )
    assert isinstance(after_end(trainer(1), stopping=False, budget=budget), Restart)
    assert isinstance(after_end(trainer(-9), stopping=False, budget=budget), Restart)
    stopped = after_end(trainer(-15), stopping=True, budget=budget)
    assert isinstance(stopped, End)
    assert (stopped.code, stopped.success) == (143, False)


def test_exit_0_after_a_request_to_stop_is_no_success() -> None:
    stopped = after_end(trainer(0), stopping=True, budget=Budget(3))
    assert isinstance(stopped, End)
    assert not stopped.success


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_cannot_run_is_not_tried_again(code: int) -> None:
    assert isinstance(after_end(trainer(code), stopping=False, budget=Budget(3)), End)


def test_a_supervisor_killed_under_the_trainer_is_a_fault() -> None:
    assert exit_code(trainer(None)) == 137
    lost = trainer(None, container_restarted=True)
    assert isinstance(after_end(lost, stopping=False, budget=Budget(3)), Restart)


def test_the_budget_counts_until_something_newer_is_durable() -> None:
    budget = Budget(2).spend().spend()
    assert budget.is_spent
    ended = after_end(trainer(1), stopping=False, budget=budget)
    assert isinstance(ended, End)
    assert "no restart is left" in ended.why
    progress = report(
        checkpoint=CheckpointView(last_durable_name="f1-n1-s10", last_durable_step=10)
    )
    refilled = budget.after_progress(progress)
    assert refilled.used == 0
    assert refilled.spend().after_progress(progress).used == 1


def test_the_first_restart_is_immediate_then_they_are_paced() -> None:
    delays = [Budget(99, used=n).delay_seconds() for n in (0, 1, 2, 3, 50)]
    assert delays == [0.0, 1.0, 2.0, 4.0, 60.0]


def test_in_place_only_where_the_newest_usable_save_is_pinned() -> None:
    saves = [candidate(20, invalid="x"), candidate(10)]
    ready = report(fence=1, candidates=saves, pinned=["f1-n10-s10"])
    chosen = fast_choice(ready, run="r")
    assert chosen is not None
    assert chosen.step == 10
    assert fast_choice(report(candidates=saves, pinned=["f1-n10-s10"]), run="r") is None
    newer = report(fence=1, candidates=[candidate(30), *saves], pinned=["f1-n10-s10"])
    assert fast_choice(newer, run="r") is None


def test_the_choice_names_this_commands_own_remedy() -> None:
    bad = report(listed=True, candidates=[candidate(10, invalid="CheckpointCorrupt")])
    held = choice(bad, run="r", allow_scratch=False)
    assert isinstance(held, NoChoice)
    assert "--allow-scratch" in held.message
    assert "annotation" not in held.message
    assert isinstance(choice(bad, run="r", allow_scratch=True), Chosen)
    assert isinstance(choice(report(listed=False), run="r", allow_scratch=True), NoChoice)
