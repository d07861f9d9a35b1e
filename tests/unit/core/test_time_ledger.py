"""The ledger of a job's time, against the vector of failures-and-formulas C11 and by hand."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_api.reasons import Reason
from rtj_api.status import (
    Condition,
    ConditionType,
    CurrentAttempt,
    Hold,
    Progress,
    RestartKind,
    ResumeDecision,
    Status,
    TimeLedger,
)
from rtj_operator.core import effectiveness, time_ledger


def attempt(number: int, **moments: Any) -> CurrentAttempt:
    fields = {"cause": "FirstStart", "kind": RestartKind.FIRST, "charge": "none", **moments}
    return CurrentAttempt(attempt=number, **fields)


class Job:
    """A job whose status is written at moments of the test's choice."""

    def __init__(self, created_at: float = 0.0) -> None:
        self.status = Status()
        self.created_at = created_at

    @property
    def ledger(self) -> TimeLedger:
        assert self.status.ledger is not None
        return self.status.ledger

    def write(self, now: float, decided: Status | None = None, **facts: Any) -> None:
        """A status write at `now`: first what reports say, then what is decided."""
        before = self.status.model_copy(update=facts)
        after = before if decided is None else decided.model_copy(update=facts)
        spent = time_ledger.settled(before, after, now=now, created_at=self.created_at)
        self.status = Status.model_validate(after.model_copy(update={"ledger": spent}).dump())
        whole = round(spent.until * 1e6) - round(spent.since * 1e6)
        assert sum(round(v * 1e6) for v in spent.seconds.model_dump().values()) == whole

    def decides(self, now: float, **fields: Any) -> None:
        self.write(now, self.status.model_copy(update=fields))

    def begin(self, number: int, now: float, **moments: Any) -> None:
        current = attempt(number, recorded_at=now, **moments)
        self.decides(now, attempt=number, current=current)

    def passes(self, now: float, **moments: Any) -> None:
        current = self.status.current
        assert current is not None
        self.write(now, current=current.model_copy(update=moments))

    def go(self, now: float, *, step: int) -> None:
        resume = ResumeDecision(attempt=self.status.attempt, step=step, at=now)
        self.decides(now, resume=resume, starts=self.status.starts + 1)

    def steps(self, step: int, at: float, *, now: float | None = None, stall: float = 0) -> None:
        """`stall`: of all saves of this attempt, as the sidecars know it by then."""
        current = self.status.current
        assert current is not None
        if stall > (current.stall_seconds or 0):
            more = {"stall_seconds": stall, "stalls": (current.stalls or 0) + 1}
            current = current.model_copy(update=more)
        progress = Progress(step=step, at=at)
        self.write(at if now is None else now, progress=progress, current=current)

    def saves(self, step: int, at: float) -> None:
        seen = {"last_saved_step": step, "last_saved_time": at}
        self.write(at, checkpoint=self.status.checkpoint.model_copy(update=seen))

    def keeps(self, step: int, at: float) -> None:
        """It is durable."""
        seen = {"last_durable_step": step, "last_durable_time": at}
        self.write(at, checkpoint=self.status.checkpoint.model_copy(update=seen))

    def spent(self) -> dict[str, float]:
        return {k: v for k, v in self.ledger.seconds.model_dump().items() if v}


def c11(*, looks: bool = False) -> Job:
    """The vector. With `looks` the status is also written at every whole step."""
    job = Job()
    job.begin(1, 0)
    job.passes(60, scheduled_at=60)
    job.go(60, step=0)
    job.passes(60, restored_at=60, training_at=60)
    job.passes(100, first_step_at=100)
    for step in range(1, 30) if looks else ():
        job.steps(step, 100 + 10 * step)
    job.steps(30, 400)
    job.saves(30, 405)
    for step in range(31, 55) if looks else ():
        job.steps(step, 405 + 10 * (step - 30), stall=5)
    job.steps(55, 655, now=674, stall=5)
    fault = {"fault_at": 655, "detected_at": 675, "cause": "Hang", "charge": "user"}
    job.begin(2, 675, kind=RestartKind.RECREATE, **fault)
    job.passes(735, scheduled_at=735)
    job.go(735, step=30)
    job.passes(755, restored_at=755, training_at=755)
    job.passes(755, first_step_at=755)
    for step in range(31, 60) if looks else ():
        job.steps(step, 755 + 10 * (step - 30))
    job.steps(60, 1055)
    job.saves(60, 1060)
    job.steps(90, 1360, stall=5)
    done = Condition(
        type=ConditionType.COMPLETE, status="True", reason="Succeeded", last_transition_time=1360
    )
    job.decides(1360, conditions=[done], completion_time=1360)
    return job


@pytest.mark.parametrize("looks", [False, True])
def test_the_vector(looks: bool) -> None:
    job = c11(looks=looks)
    assert job.spent() == {
        "productive": 900,
        "queue": 60,
        "start": 40,
        "checkpoint_stall": 10,
        "lost": 250,
        "detect": 20,
        "schedule": 60,
        "restore": 20,
    }
    ledger = job.ledger
    assert effectiveness.total(ledger.seconds) == 1360
    assert effectiveness.goodput(job.status) == pytest.approx(0.66176, abs=5e-6)
    assert effectiveness.ettr(job.status) == pytest.approx(0.66176, abs=5e-6)
    without = effectiveness.ettr(job.status, with_queue=False)
    assert without == pytest.approx(0.69231, abs=5e-6)
    assert effectiveness.mttr(ledger) == 100
    assert effectiveness.time_to_regain(ledger) == 350
    assert ledger.interruptions == 1


def test_a_stall_is_entered_once_and_never_beyond_the_time_it_lies_in() -> None:
    job = trains()
    job.steps(10, 100)
    job.steps(12, 150, stall=30)
    job.steps(13, 160, stall=30)
    assert job.spent() == {"productive": 130, "checkpoint_stall": 30}
    assert job.ledger.stalls == 1
    job.steps(14, 170, stall=90)  # known late: the time that it lay in is entered already
    job.steps(20, 300, stall=90)
    assert job.spent() == {"productive": 210, "checkpoint_stall": 90}
    job.begin(2, 300, fault_at=300, detected_at=300, scheduled_at=300, charge="user")
    job.go(300, step=20)
    job.passes(310, restored_at=310, training_at=310, first_step_at=310)
    job.steps(30, 430, stall=20)  # of this attempt
    assert job.spent()["checkpoint_stall"] == 110
    assert job.ledger.stalls == 3


def test_the_last_save_before_a_fault_is_no_loss_and_what_comes_after_it_is() -> None:
    job = trains()
    job.steps(10, 100)
    job.saves(10, 130)
    job.begin(2, 151, fault_at=150, detected_at=151, charge="user")
    assert job.spent() == {"productive": 100, "checkpoint_stall": 30, "lost": 20, "detect": 1}
    assert job.ledger.stalls == 1


def test_a_save_tells_of_steps_that_no_line_told_of() -> None:
    """Lines come every hundred steps, the fault before the next of them."""
    job = trains()
    job.steps(100, 100)
    job.saves(180, 180)
    job.begin(2, 195, fault_at=195, detected_at=195, charge="user")
    assert job.spent() == {"productive": 180, "lost": 15}
    assert job.ledger.reached == 180


def test_work_that_no_durable_save_holds_is_gone_when_the_job_fails() -> None:
    job = trains()
    job.steps(40, 400)
    assert job.ledger.unsaved_seconds == 400
    job.saves(30, 400)
    job.keeps(30, 410)
    assert job.ledger.unsaved_seconds == 100, "of steps 31 to 40"
    job.steps(60, 600)
    assert effectiveness.goodput(job.status) == 1
    assert job.ledger.unsaved_seconds == 300
    failed = Condition(
        type=ConditionType.FAILED, status="True", reason="BudgetExhausted", last_transition_time=700
    )
    job.decides(700, conditions=[failed])
    assert job.spent() == {"productive": 600, "lost": 100}, "no bucket falls"
    assert effectiveness.goodput(job.status) == pytest.approx(300 / 700)


def test_what_is_made_again_stays_unsaved_until_a_later_save() -> None:
    job = trains()
    job.steps(40, 400)
    job.keeps(20, 400)
    job.begin(2, 400, fault_at=400, detected_at=400, scheduled_at=400, charge="user")
    job.go(400, step=20)
    job.passes(410, restored_at=400, training_at=400, first_step_at=410)
    job.steps(30, 510)
    assert (job.ledger.unsaved_seconds, job.spent()["lost"]) == (200, 100)
    job.keeps(30, 510)
    assert job.ledger.unsaved_seconds == 100
    job.steps(50, 710)
    job.keeps(50, 710)
    assert job.ledger.unsaved_seconds == 0


def test_a_crash_before_the_first_step_interrupts_no_training() -> None:
    job = Job()
    job.begin(1, 0, scheduled_at=0)
    job.go(0, step=0)
    job.passes(5, restored_at=0, training_at=5)
    job.begin(2, 10, fault_at=8, detected_at=9, charge="user")
    assert job.ledger.interruptions == 0


def test_nothing_is_entered_after_the_end() -> None:
    job = c11()
    end = job.ledger
    job.write(5000)
    assert job.ledger == end


def test_a_clock_that_steps_back_or_ahead_breaks_no_sum() -> None:
    job = Job(created_at=100)
    job.begin(1, 130)
    job.passes(90, scheduled_at=90)  # the clock was set back by 40 s
    assert job.ledger.until == 130
    job.passes(160, scheduled_at=90)
    assert job.spent() == {"queue": 30, "start": 30}
    late = Job(created_at=100)
    late.write(60)  # the API server's clock is ahead
    assert (late.ledger.since, late.ledger.until) == (60, 60)


def test_a_job_of_before_there_was_a_ledger_begins_at_its_first_entry() -> None:
    job = Job(created_at=0)
    job.status = Status(attempt=3, current=attempt(3, recorded_at=10))
    job.write(500)
    assert (job.ledger.since, job.ledger.until) == (500, 500)


def trains(*, at: float = 0.0, step: int = 0) -> Job:
    job = Job(created_at=at)
    job.begin(1, at, scheduled_at=at)
    job.go(at, step=step)
    job.passes(at, restored_at=at, training_at=at)
    job.passes(at, first_step_at=at)
    return job


def test_a_fault_told_late_is_no_work() -> None:
    """Status is written between the fault and its discovery: that time was left open."""
    job = trains()
    job.steps(10, 100)
    job.write(140)  # another reason to write; nothing is heard of the gang
    assert job.ledger.until == 100
    job.begin(2, 143, fault_at=105, detected_at=142, charge="infrastructure")
    assert job.spent() == {"productive": 100, "lost": 5, "detect": 37, "decide": 1}


def test_holds_and_suspensions_and_back_off() -> None:
    job = trains()
    job.steps(10, 100)
    job.decides(110, hold=Hold(reason=Reason.SUSPENDED, message="", since=110))
    job.write(500)
    current = attempt(2, recorded_at=600, not_before=620, scheduled_at=600)
    job.decides(600, hold=None, attempt=2, current=current)
    job.write(630)
    assert job.spent() == {"productive": 100, "suspended": 500, "hold": 20, "start": 10}
    job.decides(640, hold=Hold(reason=Reason.STORE_UNREACHABLE, message="", since=640))
    job.write(700)
    assert job.spent()["hold"] == 80
    assert effectiveness.goodput(job.status) == pytest.approx(100 / 700)
    assert effectiveness.ettr(job.status) == pytest.approx(100 / 200)


def test_a_second_fault_before_new_ground_is_one_regain_of_both() -> None:
    job = trains()
    job.steps(10, 100)
    job.begin(2, 100, fault_at=100, detected_at=100, scheduled_at=100, charge="user")
    job.go(100, step=4)
    job.passes(120, restored_at=110, training_at=110, first_step_at=120)
    job.steps(7, 150)
    job.begin(3, 150, fault_at=150, detected_at=150, scheduled_at=150, charge="user")
    job.go(150, step=4)
    job.passes(160, restored_at=150, training_at=150, first_step_at=160)
    job.steps(12, 240)
    assert job.spent() == {"productive": 120, "lost": 90, "restore": 10, "start": 20}
    ledger = job.ledger
    assert (ledger.interruptions, ledger.recoveries, ledger.regains) == (2, 2, 1)
    assert effectiveness.mttr(ledger) == pytest.approx((20 + 10) / 2)
    assert effectiveness.time_to_regain(ledger) == 220 - 100


def test_a_trainer_that_reports_no_steps_is_judged_by_its_saves() -> None:
    job = Job()
    job.begin(1, 0, scheduled_at=0)
    job.go(0, step=0)
    job.passes(5, restored_at=0, training_at=5)
    job.write(50)
    assert job.ledger.until == 0, "of the time after the start nothing is known yet"
    job.saves(100, 65)
    job.saves(200, 165)
    assert job.spent() == {"start": 65, "productive": 100}


def test_the_stage_that_lasts_shows_at_each_look() -> None:
    job = Job()
    job.begin(1, 10)
    open_now = time_ledger.settled(job.status, job.status, now=500)
    assert open_now.seconds.queue == 500
