"""The right to publish: one number per attempt, claimed by creating its record if absent.

Who holds the highest number may commit, mark and delete; training needs none. Races: two claimers
of one number (create-if-absent, one wins), a zombie of an older attempt that claims late (it reads
every lower fence before it creates one, so it sees that its job has moved on), a lost reply (the
nonce in the record tells whose it is). Where the store honours no conditions, `conditions` says
what takes their place. Must never claim over another job's fence unasked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rtj_api.reasons import Reason
from rtj_api.rules.steering import masked
from rtj_api.wire import Resume

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.conditions import SETTLE_SECONDS, number_of_attempt
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.records import FenceRecord, Outcome, Parent, RunRecord, StoreFacts
from rtj_sidecar.stores.base import IfMatch, StoreProblem

_TRIES = 20


@dataclass(frozen=True, slots=True)
class Claimed:
    fence: int
    record: FenceRecord


@dataclass(frozen=True, slots=True)
class OwnedByOther:
    """Another job holds the run; `complete`: it has finished it. `record`: its newest fence."""

    owner: str
    fence: int
    complete: bool
    record: FenceRecord = field(compare=False)


@dataclass(frozen=True, slots=True)
class Superseded:
    """A later attempt of this very job has a fence: whoever asks is a zombie."""

    attempt: int
    fence: int


@dataclass(frozen=True, slots=True)
class FenceTaken:
    """The number that was to follow the held one is another's."""

    fence: int
    owner: str


@dataclass(frozen=True, slots=True)
class FenceLost:
    """A higher fence exists: nothing was written."""

    by: int


@dataclass(frozen=True, slots=True)
class Done:
    record: FenceRecord


def open_run(context: Context) -> RunRecord:
    """`run.json`, made with what a probe of the store finds if this run is new."""
    found = context.read(keys.RUN, RunRecord)
    if found is None:
        seen = context.store.probe(context.full(".probe/"))
        now = context.now()
        record = RunRecord(
            run_id=context.run_id,
            cluster_uid=context.cluster_uid,
            job_uid=context.job_uid,
            made_at=now,
            store=StoreFacts(
                conditional_create=seen.conditional_create,
                conditional_replace=seen.conditional_replace,
                checksum=seen.checksum,
                probed_at=now,
            ),
        )
        context.conditions.know(record.store.honours_conditions)
        context.create(keys.RUN, record)
        found = context.read(keys.RUN, RunRecord)
        if found is None:
            raise StoreProblem(
                Reason.STORE_UNSUPPORTED,
                f"{context.store.url} does not show what was just written there: it needs "
                "read-after-write consistency",
            )
    context.conditions.know(found[0].store.honours_conditions)
    return found[0]


def claim(
    context: Context,
    *,
    attempt: int,
    world_size: int,
    may_claim: bool,
    over: str | None = None,
    outcome: Outcome | None = None,
) -> Claimed | OwnedByOther | Superseded:
    """Claim the next fence for this attempt, or find the one that it has already.

    `may_claim`: also over another job's; with `over`, only over that owner's. `outcome`: of the new
    record.
    """
    for _ in range(_TRIES):
        fences = _fences(context)
        newest = fences[-1] if fences else None
        mine = [record for record in fences if record.owner == context.owner]
        latest = max(mine, key=lambda record: record.attempt, default=None)
        if latest is not None and latest.attempt > attempt:
            return Superseded(latest.attempt, latest.fence)
        others = newest is not None and newest.owner != context.owner
        allowed = may_claim and newest is not None and over in (None, newest.owner)
        if newest is not None and others and not allowed and not _is_free(context, newest):
            done = newest.outcome == Outcome.COMPLETE
            return OwnedByOther(newest.owner, newest.fence, done, newest)
        if newest is not None and newest.owner == context.owner and newest.attempt == attempt:
            return Claimed(newest.fence, newest)
        record = _record(
            context,
            fence=_number_after(context, newest, attempt=attempt),
            attempt=attempt,
            world_size=world_size,
        )
        if outcome is not None:
            told = {"outcome": outcome, "outcome_at": context.now()}
            record = record.model_copy(update=told)
        if context.create(keys.fence_key(record.fence), record):
            if context.honours_conditions():
                return Claimed(record.fence, record)
            context.pause(SETTLE_SECONDS)  # the next look finds it, if it is the one that stands
    raise StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{_TRIES} fences of {context.run_id} were taken by others while this one was claimed: "
        "more than one job uses this run; give each its own checkpoint.runID",
        transient=True,
    )


def claim_next(
    context: Context, *, held: int, attempt: int, world_size: int, parent: Parent
) -> Claimed | FenceTaken:
    """Claim the fence that follows `held`, together with its parent, or nothing.

    Exactly `held` + 1, or the attempt's own number where the store honours no conditions; a fence
    of this very job that a lower attempt claimed late (its prepare was overtaken while the store
    was slow) is passed over, for that attempt is over.
    """
    above = _fences(context, above=held)
    rival = next((r for r in above if r.owner != context.owner or r.attempt > attempt), None)
    if rival is not None:
        return FenceTaken(rival.fence, rival.owner)
    if above and above[-1].attempt == attempt:
        return Claimed(above[-1].fence, above[-1])
    if context.honours_conditions():
        number = (above[-1].fence if above else held) + 1
    elif (before := above[-1] if above else _own(context, held)) is not None:
        number = _number_after(context, before, attempt=attempt)
    else:
        return FenceTaken(held, "unknown")
    record = _record(context, fence=number, attempt=attempt, world_size=world_size, parent=parent)
    if context.create(keys.fence_key(number), record):
        if context.honours_conditions():
            return Claimed(number, record)
        context.pause(SETTLE_SECONDS)
    found = context.read(keys.fence_key(number), FenceRecord)
    if found is None:
        return FenceTaken(number, "unknown")
    there = found[0]
    if there.owner == context.owner and there.attempt < attempt:
        return claim_next(context, held=held, attempt=attempt, world_size=world_size, parent=parent)
    if (there.owner, there.attempt) == (context.owner, attempt):
        return Claimed(there.fence, there)
    return FenceTaken(there.fence, there.owner)


def set_parent(context: Context, *, fence: int, parent: Parent) -> Done | FenceLost:
    """Say what this attempt starts from, before its go. A parent is set once."""

    def change(record: FenceRecord) -> FenceRecord:
        if record.parent is not None and _place(record.parent) != _place(parent):
            raise StoreProblem(
                Reason.RUN_DAMAGED,
                f"fence {fence} already started from {record.parent.name or 'scratch'}, it cannot "
                f"start from {parent.name or 'scratch'}: a new attempt needs its own fence",
            )
        if record.parent is not None:
            return record  # said before a crash; a position known less well by now changes nothing
        return record.model_copy(update={"parent": parent})

    return _change(context, fence, change)


def _place(parent: Parent) -> tuple[bool, str | None, str | None]:
    return parent.scratch, parent.run, parent.name


def set_choice(context: Context, *, fence: int, choice: Resume) -> Done | FenceLost:
    """Say what every rank restores; the first choice stands, so look at the answer's record."""

    def change(record: FenceRecord) -> FenceRecord:
        return record if record.choice else record.model_copy(update={"choice": choice})

    return _change(context, fence, change)


def set_go(context: Context, *, fence: int) -> Done | FenceLost:
    """Say that every rank has restored, so that trainers may start."""
    now = context.now()

    def change(record: FenceRecord) -> FenceRecord:
        return record if record.go_at is not None else record.model_copy(update={"go_at": now})

    return _change(context, fence, change)


def set_outcome(context: Context, *, fence: int, outcome: Outcome) -> Done | FenceLost:
    """Say how the job ended."""
    now = context.now()

    def change(record: FenceRecord) -> FenceRecord:
        if record.outcome == outcome:
            return record
        return record.model_copy(update={"outcome": outcome, "outcome_at": now})

    return _change(context, fence, change)


def lost_to(context: Context, fence: int) -> FenceLost | None:
    """FenceLost where `fence` is not the highest (any more).

    A fence is never deleted: a listing that ends below one that was claimed is no answer.
    """
    highest = context.highest_fence()
    if highest < fence:
        raise StoreProblem(
            Reason.STORE_UNREACHABLE,
            f"{context.store.url} lists fence {highest or 'none'} of {context.run_id} as the "
            f"highest, and {fence} was claimed there: check that the whole volume is mounted and "
            "that nobody removed the run's records",
            transient=True,
        )
    if highest == fence and not context.honours_conditions() and _own(context, fence) is None:
        return FenceLost(fence)
    return None if highest == fence else FenceLost(highest)


def _is_free(context: Context, newest: FenceRecord) -> bool:
    """Failed and released say by themselves that another may go on; but two others may then, and
    only a store that honours conditions lets one of them."""
    ended = newest.outcome in (Outcome.FAILED, Outcome.RELEASED)
    return ended and context.honours_conditions()


def _number_after(context: Context, before: FenceRecord | None, *, attempt: int) -> int:
    if context.honours_conditions():
        return (before.fence if before else 0) + 1
    return number_of_attempt(before, owner=context.owner, attempt=attempt)


def _own(context: Context, fence: int) -> FenceRecord | None:
    """The record of that fence, if it is this job's."""
    found = context.read(keys.fence_key(fence), FenceRecord)
    return found[0] if found is not None and found[0].owner == context.owner else None


def _change(
    context: Context, fence: int, change: Callable[[FenceRecord], FenceRecord]
) -> Done | FenceLost:
    key = keys.fence_key(fence)
    for _ in range(_TRIES):
        if lost := lost_to(context, fence):
            return lost
        found = context.read(key, FenceRecord)
        if found is None or found[0].owner != context.owner:
            return FenceLost(fence)
        record, etag = found
        changed = change(record)
        if changed == record or context.write(key, changed, condition=IfMatch(etag)):
            return Done(changed)
    raise StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"fence {fence} of {context.run_id} is changed by others all the time: more than one "
        "sidecar acts for this attempt",
        transient=True,
    )


def _record(
    context: Context,
    *,
    fence: int,
    attempt: int,
    world_size: int,
    parent: Parent | None = None,
) -> FenceRecord:
    return FenceRecord(
        fence=fence,
        cluster_uid=context.cluster_uid,
        job_uid=context.job_uid,
        attempt=attempt,
        world_size=world_size,
        nonce=context.new_id(),
        claimed_at=context.now(),
        namespace=context.about.namespace,
        job=context.about.job,
        image=context.about.image,
        command=masked(context.about.command),
        parent=parent,
    )


def _fences(context: Context, *, above: int = 0) -> list[FenceRecord]:
    """In order of their numbers."""
    found = (keys.parse_fence(key) for key in context.keys(keys.FENCES))
    numbers = sorted(number for number in found if number is not None and number > above)
    read = context.map(lambda number: context.read(keys.fence_key(number), FenceRecord), numbers)
    return [found[0] for found in read if found is not None]
