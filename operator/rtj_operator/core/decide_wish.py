"""The one-shot wishes of the annotation `resumable-training.dev/request`.

Each is done or refused once, by its id, in one write that says which in `status.lastRequest` and in
an event. Must never let one pass without a word. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.steering import FORMS, read_named
from rtj_api.status import Beginnings, LastRequest, Status, WantedBeginning
from rtj_api.wire import Request, RequestAction

from rtj_operator.core import attempts, bisecting, steering
from rtj_operator.core.attempts import Cause
from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import record

REFUSED = "refused: "


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What becomes of a wish: the words, the status with what must be remembered, and the cause of
    a new attempt where one is needed."""

    text: str
    status: Status
    cause: Cause | None = None


def _cause(reason: Reason, message: str, *, claim_over: str | None = None) -> Cause:
    return Cause(
        reason=reason,
        charge=Charge.INTENT,
        message=message,
        claim_over=claim_over,
        is_paced=False,
    )


def wish(gang: Gang) -> Plan | None:
    """A person's request annotation with a new id: granted or refused once, in one write."""
    job, status = gang.job, gang.status
    if job.problem is not None:
        return None
    request = job.request
    key = request.id if request is not None else job.request_error_id
    if key is None or (status.last_request is not None and status.last_request.id == key):
        return None
    if request is not None:
        answer = _answer(gang, request)
    else:
        answer = _Answer(text=f"{REFUSED}{job.request_error}", status=status)
    action = request.action if request is not None else ""
    last = LastRequest(id=key, action=action, at=gang.now, result=answer.text)
    base = answer.status.model_copy(update={"last_request": last})
    if answer.cause is not None and (request is None or request.action != RequestAction.BISECT):
        base = base.model_copy(update={"bisection": None})  # something else was asked for
    if answer.cause is not None:
        base = attempts.next_attempt(replace(gang, status=base), answer.cause)
    is_refused = answer.text.startswith(REFUSED)
    reason = answer.cause.reason if answer.cause is not None else Reason.ACCEPTED
    note = Note(
        type="Warning" if is_refused else "Normal",
        reason=Reason.REQUEST_REFUSED if is_refused else reason,
        message=f"request {key}: {answer.text}",
    )
    if status.is_terminal:
        return Plan(rule="wish", why=answer.text, status=base, notes=(note,))
    evidence = {"request": request.dump()} if request is not None else {}
    return record(gang, base, rule="wish", why=answer.text, notes=(note,), evidence=evidence)


def _is_suspended(gang: Gang) -> bool:
    hold = gang.status.hold
    return gang.spec.suspend or (hold is not None and hold.reason == Reason.SUSPENDED)


def _answer(gang: Gang, request: Request) -> _Answer:
    if gang.status.is_terminal:
        return _Answer(
            text=f"{REFUSED}the job is finished; make a new one with the same checkpoint.runID",
            status=gang.status,
        )
    match request.action:
        case RequestAction.ALLOW_SCRATCH:
            return _allow_scratch(gang, request)
        case RequestAction.RESTART:
            return _restart(gang)
        case RequestAction.TAKE_OVER:
            return _take_over(gang)
        case RequestAction.RESUME_FROM:
            return _resume_from(gang, request)
        case RequestAction.BISECT:
            return _bisect(gang, request)


def _remembering(status: Status, **fields: object) -> Status:
    beginnings = Beginnings.model_validate({**status.beginnings.model_dump(), **fields})
    return status.model_copy(update={"beginnings": beginnings})


def _allow_scratch(gang: Gang, request: Request) -> _Answer:
    status, hold = gang.status, gang.status.hold
    if hold is not None and hold.reason in (Reason.RUN_EXISTS, Reason.RUN_ALREADY_COMPLETE):
        asked = steering.asked_by_request(request.id)
        message = "a person asked for a start from nothing beside the saves of before"
        return _Answer(
            text="a new line begins at step 0; the saves of before stay",
            status=_remembering(status, wanted=WantedBeginning(asked=asked), accepted=True),
            cause=_cause(Reason.HOLD_ENDED, message),
        )
    allowed = status.model_copy(update={"allow_scratch": True})
    text = "the next start may be from nothing if no save can be used"
    if hold is not None and hold.reason == Reason.NO_VALID_CHECKPOINT:
        cause = _cause(Reason.HOLD_ENDED, "a person allowed a start from nothing")
        return _Answer(text=text, status=allowed, cause=cause)
    return _Answer(text=text, status=allowed)


def _restart(gang: Gang) -> _Answer:
    status, hold = gang.status, gang.status.hold
    if status.attempt == 0 or _is_suspended(gang):
        return _Answer(text="nothing runs that could be restarted", status=status)
    if hold is not None and hold.reason == Reason.RUN_EXISTS:
        return _Answer(
            text="the job goes on with the existing run",
            status=_remembering(status, accepted=True),
            cause=_cause(Reason.HOLD_ENDED, "a person let the job go on with the existing run"),
        )
    return _Answer(
        text="restarted",
        status=status,
        cause=_cause(Reason.RESTART_REQUESTED, "a person asked for a restart"),
    )


def _take_over(gang: Gang) -> _Answer:
    status, hold = gang.status, gang.status.hold
    report = gang.rank_zero.report if gang.members else None
    owner = report.fence_owner if report is not None else None
    if hold is None or hold.reason != Reason.RUN_IN_USE:
        return _Answer(text=f"{REFUSED}the run is not held by another job", status=status)
    if owner is None:
        return _Answer(
            text=f"{REFUSED}rank 0's sidecar does not say now who holds the run: ask again with "
            "another id, or name the holder's UID in checkpoint.takeOver",
            status=status,
        )
    return _Answer(
        text=f"the run is taken over from its last holder {owner}",
        status=status,
        cause=_cause(
            Reason.RUN_TAKEN_OVER, "a person let this job take the run over", claim_over=owner
        ),
    )


def _resume_from(gang: Gang, request: Request) -> _Answer:
    status, hold = gang.status, gang.status.hold
    if not request.save:
        example = '{"id": "…", "action": "resume-from", "save": "f3-n2-s400"}'
        return _Answer(text=f"{REFUSED}it names no save: {example}; {FORMS}", status=status)
    try:
        read_named(request.save)
    except ValueError as error:
        return _Answer(text=f"{REFUSED}{error}", status=status)
    asked = steering.asked_by_request(request.id)
    wanted = WantedBeginning(value=request.save, asked=asked)
    remembered = _remembering(status, wanted=wanted, accepted=True)
    if status.attempt == 0 or _is_suspended(gang):
        return _Answer(text=f"the next start is from {request.save}", status=remembered)
    if hold is not None and hold.reason == Reason.RUN_IN_USE:
        text = f"once the run is free, the start is from {request.save}"
        return _Answer(text=text, status=remembered)
    return _Answer(
        text=f"goes on from {request.save}",
        status=remembered,
        cause=_cause(Reason.BEGINNING_CHANGED, f"a person asked to go on from {request.save}"),
    )


def _bisect(gang: Gang, request: Request) -> _Answer:
    if gang.status.attempt == 0 or _is_suspended(gang) or gang.through_store:
        text = f"{REFUSED}the job must have been started, and its pods be heard"
        return _Answer(text=text, status=gang.status)
    found = bisecting.begun(gang, request_id=request.id)
    if isinstance(found, str):
        return _Answer(text=f"{REFUSED}{found}", status=gang.status)
    text = (
        f"looks for the newest of {len(found.saves)} saves from which training gets "
        f"{found.run_steps} steps further; {found.saves[found.bad]} is taken for bad"
    )
    cause = _cause(Reason.BEGINNING_CHANGED, f"request {request.id}: {text}")
    return _Answer(text=text, status=bisecting.with_trial(gang.status, found), cause=cause)
