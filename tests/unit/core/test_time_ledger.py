"""The ledger of a job's time, against the vector of failures-and-formulas C11 and by hand."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_api.reasons import Reason
from rtj_api.status import (
    CheckpointStatus,
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
from rtj_operator.core import time_ledger


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

    def steps(self, step: int, at: float, *, now: float | None = None) -> None:
        self.write(at if now is None else now, progress=Progress(step=step, at=at))

    def saves(self, step: int, at: float) -> None:
        self.write(at, checkpoint=CheckpointStatus(last_saved_step=step, last_saved_time=at))

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
        job.steps(step, 405 + 10 * (step - 30))
    job.steps(55, 655, now=674)
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
    job.steps(90, 1360)
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
    assert time_ledger.total(ledger.seconds) == 1360
    assert time_ledger.goodput(ledger.seconds) == pytest.approx(0.66176, abs=5e-6)
    assert time_ledger.ettr(ledger.seconds) == pytest.approx(0.66176, abs=5e-6)
    without = time_ledger.ettr(ledger.seconds, with_queue=False)
    assert without == pytest.approx(0.69231, abs=5e-6)
    assert time_ledger.mttr(ledger) == 100
    assert time_ledger.time_to_regain(ledger) == 350
    assert ledger.interruptions == 1


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
    seconds = job.ledger.seconds
    assert time_ledger.goodput(seconds) == pytest.approx(100 / 700)
    assert time_ledger.ettr(seconds) == pytest.approx(100 / 200)


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
    assert time_ledger.mttr(ledger) == pytest.approx((20 + 10) / 2)
    assert time_ledger.time_to_regain(ledger) == 220 - 100


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
