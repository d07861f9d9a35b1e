"""What a job begins from: what is there already, and what a person asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.decisions import asked, prepared, status_of
from kit.observations import applied, later, running, with_job
from kit.others_runs import HOLDER, OWNER, hold_of, in_use, told
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import Status
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed

OLD = wire.Candidate(name="f7-n2-s400", step=400, durable=True, full_state=True, needs=[0])


def test_a_finished_run_is_held_with_every_way_on() -> None:
    reason, words = hold_of(decide(in_use(complete=True)))
    assert reason == Reason.RUN_ALREADY_COMPLETE
    for word in ("runID", "delete", "Fresh", "resumeFrom"):
        assert word in words
    gone = replace(in_use(complete=True), owner_lives={OWNER: False})
    assert hold_of(decide(gone))[0] == Reason.RUN_ALREADY_COMPLETE, "gone or not, it is finished"


@pytest.mark.parametrize(
    "spec", [{"on_existing_run": "Fresh"}, {"resume_from": "f7-n2-s400"}, {"resume_from": "other"}]
)
def test_a_finished_run_is_trained_on_where_a_beginning_is_named(spec: dict[str, str]) -> None:
    seen = in_use(spec=spec, complete=True)
    plan = decide(seen)
    assert plan.rule == "permit"
    assert told(decide(applied(seen, plan)))[0].may_claim


def test_resume_lists_what_changed_since_the_job_before() -> None:
    plan = decide(prepared(candidates=[OLD], holder=HOLDER))
    assert status_of(plan).resume.name == OLD.name
    note = next(n for n in plan.notes if n.reason == Reason.RUN_CONTINUED)
    assert "team/gpt" in note.message
    assert "image a:1 -> a:2" in note.message


def test_hold_waits_for_a_request() -> None:
    spec = {"on_existing_run": "Hold"}
    seen = prepared(spec=spec, candidates=[OLD], holder=HOLDER)
    plan = decide(seen)
    reason, words = hold_of(plan)
    assert reason == Reason.RUN_EXISTS
    assert OLD.name in words
    held = applied(seen, plan)
    assert decide(later(held, 200)).rule == "held"
    go = decide(asked(held, wire.RequestAction.RESTART))
    assert (status_of(go).attempt, status_of(go).beginnings.accepted) == (2, True)
    fresh = status_of(decide(asked(held, wire.RequestAction.ALLOW_SCRATCH)))
    assert fresh.current.wanted.value is None
    named = status_of(decide(asked(held, wire.RequestAction.RESUME_FROM, save="f7-n1-s200")))
    assert named.current.wanted.value == "f7-n1-s200"
    assert decide(prepared(spec=spec)).rule == "choose", "a new run has nothing to wait for"


def test_fresh_begins_at_nothing_once_and_loses_no_save() -> None:
    seen = prepared(spec={"on_existing_run": "Fresh"}, candidates=[OLD], holder=HOLDER)
    assert told_wanted(seen).value is None
    plan = decide(seen)
    status = status_of(plan)
    assert status.resume.scratch
    assert not status.ever_durable, "the saves of before are no loss to the new line"
    assert status.checkpoint.last_durable_step is None
    assert "1 saves of before stay" in status.resume.reason
    again = decide(with_job(seen, status=status_after_restore(status)))
    assert again.rule != "steer"


def told_wanted(observed: Observed) -> Any:
    job = observed.job
    assert job is not None
    assert job.status.current is not None
    assert job.status.current.wanted is not None
    return job.status.current.wanted


def status_after_restore(status: Status) -> Status:
    """The next attempt after one that all ranks restored for."""
    assert status.current is not None
    restored = status.current.model_copy(update={"restored_at": 1100.0})
    return status.model_copy(update={"current": restored})


def found(save: wire.Candidate | None = None, *, problem: str | None = None, asked: str) -> Any:
    return wire.Found(asked=asked, save=save, problem=problem)


def test_the_named_save_is_chosen_before_any_newer_one() -> None:
    newer = OLD.model_copy(update={"name": "f9-n9-s900", "step": 900})
    value = "f7-n2-s400"
    seen = prepared(
        spec={"resume_from": value}, candidates=[newer, OLD], found=found(OLD, asked=value)
    )
    plan = decide(seen)
    resume = status_of(plan).resume
    assert (resume.name, resume.asked) == (value, value)
    assert status_of(plan).checkpoint.last_durable_step == 400


def test_nothing_is_chosen_while_it_is_looked_for_and_the_wait_ends() -> None:
    seen = prepared(spec={"resume_from": "other/run"}, candidates=[OLD])
    assert decide(seen).rule == "refresh"
    assert hold_of(decide(later(seen, 3700)))[0] == Reason.RESUME_FROM_UNUSABLE


def test_a_named_save_that_cannot_be_used_holds_with_why_and_the_remedy() -> None:
    value = "f7-n2-s400"
    seen = prepared(
        spec={"resume_from": value}, candidates=[OLD], found=found(problem="bit rot", asked=value)
    )
    reason, words = hold_of(decide(seen))
    assert reason == Reason.RESUME_FROM_UNUSABLE
    assert "bit rot" in words
    assert "resume-from" in words
    weights = OLD.model_copy(update={"full_state": False})
    seen = prepared(spec={"resume_from": value}, found=found(weights, asked=value))
    assert "weights only" in hold_of(decide(seen))[1]


def test_a_value_acts_once_in_a_run_whatever_becomes_of_the_job_object() -> None:
    value = "f7-n2-s400"
    newer = OLD.model_copy(update={"name": "f9-n9-s900", "step": 900})
    seen = prepared(spec={"resume_from": value}, candidates=[newer, OLD], acted=[value])
    plan = decide(seen)
    assert status_of(plan).resume.name == newer.name
    # An operator that comes back has heard nobody yet.
    deaf = replace(applied(seen, plan), reports={})
    assert decide(deaf).rule != "steer"
    assert status_of(plan).beginnings.acted == [value]


def test_a_start_that_failed_before_the_restore_does_not_use_the_wish_up() -> None:
    value = "f7-n2-s400"
    seen = prepared(spec={"resume_from": value}, candidates=[OLD], found=found(OLD, asked=value))
    started = applied(seen, decide(seen))
    status = status_of(decide(asked(started, wire.RequestAction.RESTART)))
    assert status.current.wanted.value == value
    restored = with_job(started, status=status_after_restore(started.job.status))
    status = status_of(decide(asked(restored, wire.RequestAction.RESTART)))
    assert (status.current.wanted, status.beginnings.acted) == (None, [value])


def test_a_value_set_on_a_running_job_makes_a_new_attempt_once() -> None:
    seen = running()
    changed = with_job(seen, spec=replace(seen.job.spec, resume_from="f1-n1-s4"))
    plan = decide(changed)
    status = status_of(plan)
    assert (plan.rule, status.attempt) == ("steer", 2)
    assert status.current.cause == Reason.BEGINNING_CHANGED
    orders = told(decide(applied(changed, plan)))
    assert orders[0].wanted == wire.Wanted(value="f1-n1-s4", asked="f1-n1-s4")
    assert orders[1].wanted is None
    assert decide(applied(changed, plan)).rule == "converge"


def test_what_was_passed_over_of_a_foreign_place_is_told() -> None:
    value = "/data/old"
    seen = prepared(
        spec={"resume_from": value},
        found=found(OLD, asked=value).model_copy(
            update={"passed_over": ["ckpt_40.pt: Torn: ckpt_40.pt is cut off"]}
        ),
    )
    told = [n.message for n in decide(seen).notes if n.reason == Reason.CHECKPOINT_FALLBACK]
    assert told == ["passed over ckpt_40.pt: Torn: ckpt_40.pt is cut off"]


def test_a_request_rolls_back_to_the_save_it_names() -> None:
    seen = asked(running(), wire.RequestAction.RESUME_FROM, save="f1-n1-s4", id="7")
    status = status_of(decide(seen))
    assert status.attempt == 2
    assert status.current.wanted.asked == "request 7"
    assert status.last_request.result == "goes on from f1-n1-s4"


@pytest.mark.parametrize(
    ("fields", "words"),
    [({}, "names no save"), ({"save": "ftp://b/last.pt"}, "full name")],
)
def test_a_resume_from_that_names_nothing_is_refused_with_the_forms(
    fields: dict[str, str], words: str
) -> None:
    plan = decide(asked(running(), wire.RequestAction.RESUME_FROM, **fields))
    assert [n.reason for n in plan.notes] == [Reason.REQUEST_REFUSED]
    assert words in status_of(plan).last_request.result
    assert status_of(plan).attempt == 1


def test_an_unreadable_request_is_answered_once_by_event_and_status() -> None:
    seen = with_job(running(), request_error="annotation …: no JSON", request_error_id="x!1")
    plan = decide(seen)
    assert [(n.type, n.reason) for n in plan.notes] == [("Warning", Reason.REQUEST_REFUSED)]
    last = status_of(plan).last_request
    assert (last.id, "no JSON" in last.result) == ("x!1", True)
    assert decide(applied(seen, plan)).rule != "wish"


def test_a_freed_save_that_went_with_its_pod_is_nobodys_question() -> None:
    """Its suspicion was withdrawn, so the operator itself asked for it; it was on a disk only."""
    asked = "suspicion withdrawn after attempt 6"
    seen = prepared(candidates=[OLD], found=found(problem="there is no save", asked=asked))
    job = seen.job
    assert job is not None
    wanted = {"wanted": {"value": "f3-n84-s84", "asked": asked}}
    known = job.status.model_dump()
    current = {**known["current"], **wanted}
    status = Status.model_validate({**known, "beginnings": wanted, "current": current})
    plan = decide(with_job(seen, status=status))
    assert plan.rule == "choose"
    assert status_of(plan).resume.name == OLD.name
