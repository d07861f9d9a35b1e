"""What a person asked an attempt to begin from: which wish is open, and the choice it makes.

A wish acts once: the run's own records bear `asked` with what came of it, so neither an operator
that comes back nor a job that is applied anew does it again. Until all ranks hold that save, the
wish stays open, so an attempt that failed before does not end it. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.rules.resume import Chosen, NoChoice, PassedOver
from rtj_api.status import Beginnings, CurrentAttempt, WantedBeginning
from rtj_api.v1alpha1 import OnExistingRun
from rtj_api.wire import Found, Report, Resume, SidecarPhase

from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Note

_ACTED_KEPT = 64
_RESTORED = (
    SidecarPhase.RESTORED,
    SidecarPhase.TRAINING,
    SidecarPhase.EXITED,
    SidecarPhase.DRAINING,
    SidecarPhase.DRAINED,
)
HOW = (
    "Correct or remove checkpoint.resumeFrom, or name another by the annotation "
    'resumable-training.dev/request: {"id": "…", "action": "resume-from", "save": "…"}'
)


def asked_by_request(request_id: str) -> str:
    return f"request {request_id}"


def fresh_of(gang: Gang) -> str:
    """`asked` of a start from nothing by onExistingRun: once for each job object."""
    return f"Fresh of job {gang.job.uid}"


def wanted(gang: Gang) -> WantedBeginning | None:
    """The wish that is not done yet: a request before the spec."""
    status, spec = gang.status, gang.spec
    if status.beginnings.wanted is not None:
        return status.beginnings.wanted
    zero = gang.rank_zero.report if gang.members else None
    acted = {*status.beginnings.acted, *(zero.acted if zero is not None else ())}
    if spec.resume_from:
        value = spec.resume_from
        return None if value in acted else WantedBeginning(value=value, asked=value)
    fresh = fresh_of(gang)
    begins = status.starts == 0 or (status.resume is not None and status.resume.asked == fresh)
    if status.current is not None and status.current.wanted is not None:
        # In store mode the pods choose, and status.resume does not name what for.
        begins = begins or status.current.wanted.asked == fresh
    if spec.on_existing_run == OnExistingRun.FRESH and begins and fresh not in acted:
        return WantedBeginning(asked=fresh)
    return None


def next_beginnings(gang: Gang, current: CurrentAttempt | None) -> Beginnings:
    """A wish is done as soon as every rank holds what it asked for, or the run's records say that
    an earlier job's attempt began so."""
    old, resume = _known_from_records(gang), gang.status.resume
    if gang.through_store and current is not None and current.wanted is not None:
        return _next_by_last_words(gang, old, asked=current.wanted.asked)
    if current is None or current.restored_at is None or not gang.status.is_started:
        return old
    if resume is None or resume.asked is None or resume.asked in old.acted:
        return old
    is_done = old.wanted is not None and old.wanted.asked == resume.asked
    return old.model_copy(
        update={
            "acted": [*old.acted, resume.asked][-_ACTED_KEPT:],
            "wanted": None if is_done else old.wanted,
        }
    )


def _next_by_last_words(gang: Gang, old: Beginnings, *, asked: str) -> Beginnings:
    """Where the pods chose: a trainer of this attempt ran, so every rank held what was wanted."""
    has_trained = any(
        m.report is not None and m.report.trainer.attempt == gang.attempt for m in gang.members
    )
    if not has_trained or asked in old.acted:
        return old
    is_done = old.wanted is not None and old.wanted.asked == asked
    return old.model_copy(
        update={
            "acted": [*old.acted, asked][-_ACTED_KEPT:],
            "wanted": None if is_done else old.wanted,
        }
    )


def _known_from_records(gang: Gang) -> Beginnings:
    """With what rank 0's sidecar read of the wishes that this spec may hold: an operator that
    comes back has no report at first, and must not take them for new."""
    old = gang.status.beginnings
    zero = gang.rank_zero.report if gang.members else None
    ours = (gang.spec.resume_from, fresh_of(gang))
    told = zero.acted if zero is not None else []
    new = [asked for asked in ours if asked in told and asked not in old.acted]
    if not new:
        return old
    return old.model_copy(update={"acted": [*old.acted, *new][-_ACTED_KEPT:]})


def is_on_its_way(gang: Gang) -> bool:
    """Another beginning was chosen and rank 0's sidecar still speaks of the line before it."""
    resume = gang.status.resume
    if not gang.status.is_started or resume is None or resume.asked is None or resume.fast:
        return False
    return not gang.rank_zero.has_reached(gang.attempt, *_RESTORED)


def choose(gang: Gang, wish: WantedBeginning) -> Chosen | NoChoice | None:
    """What an open wish begins from; None while rank 0's sidecar still looks for it."""
    zero = gang.rank_zero.report
    if zero is None or not zero.listed:
        return NoChoice(
            Reason.STORE_UNREACHABLE,
            f"the store does not answer, so {wish.value or 'the run'} could not be looked for; it "
            "is tried again",
        )
    if wish.value is None:
        return _fresh(gang, wish, zero)
    found = zero.found
    if found is None or found.asked != wish.asked:
        return _not_found_yet(gang, wish)
    return _named(gang, wish, found)


def _fresh(gang: Gang, wish: WantedBeginning, zero: Report) -> Chosen:
    before = sum(c.durable for c in zero.candidates)
    old = f"; its {before} saves of before stay and can be named" if before else ""
    return Chosen(
        Resume(scratch=True, asked=wish.asked),
        f"a new line of run {gang.spec.run_id} begins at step 0, as was asked for{old}",
    )


def _not_found_yet(gang: Gang, wish: WantedBeginning) -> NoChoice | None:
    current = gang.status.current
    began = current.recorded_at if current is not None else gang.now
    if not gang.alarm.has_passed(began + gang.policy.import_seconds):
        return None
    return NoChoice(
        Reason.RESUME_FROM_UNUSABLE,
        f"{wish.value} was not brought into the run within {gang.policy.import_seconds:.0f} s: "
        f"see the log of rank 0's sidecar. {HOW}",
    )


def _named(gang: Gang, wish: WantedBeginning, found: Found) -> Chosen | NoChoice:
    save = found.save
    why = found.problem
    if save is not None and save.full_state is False:
        why = "it holds weights only, not the optimizer's state"
    passed = tuple(
        PassedOver(name, None, text)
        for name, _, text in (told.partition(": ") for told in found.passed_over)
    )
    if save is None or why is not None:
        return NoChoice(
            Reason.RESUME_FROM_UNUSABLE,
            f"{wish.value} cannot be resumed from: {why}. {HOW}",
            passed,
        )
    step = "unknown step" if save.step is None else f"step {save.step}"
    origin = "" if save.name == wish.value else f", copied from {wish.value}"
    return Chosen(
        Resume(
            run=gang.spec.run_id,
            name=save.name,
            step=save.step,
            durable=True,
            asked=wish.asked,
        ),
        f"asked for: {save.name} ({step}){origin}",
        passed,
    )


def existing_run(gang: Gang, zero: Report) -> NoChoice | None:
    """onExistingRun: Hold, and the run had a life before this job."""
    status = gang.status
    if gang.spec.on_existing_run != OnExistingRun.HOLD or status.starts > 0:
        return None
    if status.beginnings.accepted or wanted(gang) is not None:
        return None
    newest = next((c for c in zero.candidates if c.durable and c.invalid is None), None)
    if newest is None and zero.holder is None:
        return None
    holds = f"its newest save is {newest.name}" if newest is not None else "it has no valid save"
    return NoChoice(
        Reason.RUN_EXISTS,
        f"run {gang.spec.run_id} exists ({holds}) and checkpoint.onExistingRun is Hold. Set it to "
        "Resume or Fresh, or say by the annotation resumable-training.dev/request what to do: "
        '{"id": "1", "action": "restart"} goes on from the newest save, "allow-scratch" begins at '
        'step 0 beside it, "resume-from" with "save" takes the one that is named',
    )


def continued(gang: Gang, zero: Report) -> tuple[Note, ...]:
    """At a job's first start in a run that another job had: what differs between the two."""
    holder = zero.holder
    if gang.status.starts > 0 or holder is None:
        return ()
    name = f"{holder.namespace}/{holder.job}" if holder.job else holder.owner
    changed = "; ".join(holder.changes) or "nothing in image, command and world size"
    message = (
        f"run {gang.spec.run_id} was last held by job {name} (UID {holder.owner.rpartition('/')[2]}"
        f", attempt {holder.attempt}); changed since: {changed}"
    )
    return (Note(type="Normal", reason=Reason.RUN_CONTINUED, message=message),)


def why_steered(gang: Gang) -> str | None:
    """A wish that the pods of this attempt have not been told of; None where there is none."""
    current, wish = gang.status.current, wanted(gang)
    if current is None or wish is None or gang.rank_zero.report is None:
        return None
    if current.wanted is not None and current.wanted.asked == wish.asked:
        return None
    return f"asked to begin from {wish.value or 'nothing'}"
