"""How the ranks of one attempt get from wherever they are to the go, through the store alone.

Rank 0 chooses by the same pure rule as the operator and says when trainers may start; the others
follow its fence; each says in a record of its own how far it is. Must never let a trainer start
before every rank has restored the same save, and never wait for a rank that has stopped moving.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.rules import resume as rules
from rtj_api.wire import (
    Directive,
    Resume,
    SidecarPhase,
    StallView,
)

from rtj_sidecar.choosing import choose, may_yet_be_pinned
from rtj_sidecar.failing import AttemptFailed
from rtj_sidecar.runs.fence import FenceLost
from rtj_sidecar.runs.ready import Agreement
from rtj_sidecar.runs.records import FenceRecord, ReadyRecord, ReadyState
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.storing import Storing
from rtj_sidecar.trials import ticks_of

T = TypeVar("T")

LOOK_SECONDS = 0.5  # between two looks at the others' records
TELL_SECONDS = 20.0  # a record that only shows movement is written so often at most
FENCE_SECONDS = 660.0  # rank 0 may stop, settle, scan and list for ten minutes
STILL_SECONDS = 240.0  # no rank's record has moved
STALL_LINES = 24  # of what a silent trainer is doing
PIN_SECONDS = 3.0  # for the others to learn the name of what they have pinned
KEY = "store-mode"
_ORDER = {ReadyState.STOPPED: 0, ReadyState.RESTORED: 1, ReadyState.DRAINED: 2}

Said = dict[int, ReadyRecord]
Step = Callable[[Directive], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Place:
    """How far this rank is, and where it says so."""

    fence: int
    attempt: int
    state: ReadyState


class Agreeing:
    """`storing` only on rank 0. Belongs to the event loop's thread."""

    def __init__(self, station: Station, storing: Storing | None) -> None:
        self._at = station
        self._storing = storing
        self.place: Place | None = None
        self._told: tuple[object, ...] = ()
        self._told_at = 0.0
        self._telling = threading.Lock()  # an older record never overwrites a newer one
        self._moved: tuple[object, ...] = ()  # what all ranks had said, when that last changed
        self._moved_at = 0.0

    # --- up to the go ---

    async def reach(
        self, directive: Directive, *, prepare: Step, restore: Step
    ) -> Directive | None:
        """Everything that is left until trainers may start; the directive with the save that was
        agreed on, or None where this rank has given the attempt up. Raises AttemptFailed."""
        at, attempt = self._at, directive.attempt
        agreement = self._agreement()
        if directive.resume is None:
            await prepare(directive)
            if at.reporter.current.phase is SidecarPhase.FAILED:
                return None
        fence = await self._fence(agreement, directive)
        await self.say(Place(fence, attempt, ReadyState.STOPPED))
        resume = directive.resume or await self._choice(agreement, directive, fence)
        agreed = directive.model_copy(update={"resume": resume})
        if at.journal.entry.restored_attempt < attempt:
            await restore(agreed)
        at.set_phase(SidecarPhase.RESTORED)
        await self.say(Place(fence, attempt, ReadyState.RESTORED))
        await self._go(agreement, directive, fence)
        return agreed

    def _agreement(self) -> Agreement:
        run = self._at.run
        if run is None:
            raise AttemptFailed(
                Reason.STORE_UNREACHABLE,
                "the operator cannot reach this pod, and there is no store to agree through: set "
                f"checkpoint.store, or let the operator reach port {self._at.site.port}",
            )
        return run.agreement

    async def _fence(self, agreement: Agreement, directive: Directive) -> int:
        """The number of this attempt's fence: claimed on rank 0, found by the others."""
        at, storing = self._at, self._storing
        if storing is None:

            def claimed(record: FenceRecord | None, _: Said) -> int | None:
                return record.fence if record is not None else None

            return await self._until(
                claimed,
                agreement,
                directive,
                fence=None,
                what="claimed a fence",
                patience=FENCE_SECONDS,
            )
        if directive.resume is None and not at.reporter.current.listed:
            # What all ranks have pinned might do, but there is nothing to agree on it through.
            trouble = next((p for p in at.reporter.current.degraded if p.reason), None)
            text = f": {trouble.message}" if trouble is not None else ""
            raise AttemptFailed(
                Reason.STORE_UNREACHABLE,
                f"no report reaches the operator, nor this pod the store{text}",
            )
        if at.journal.entry.fence_attempt < directive.attempt and directive.resume is not None:
            # The save was chosen while the store was silent.
            resume = directive.resume
            await storing.claim_late(
                attempt=directive.attempt,
                world_size=directive.world_size,
                parent=storing.recalling.parent_for(resume),
            )
        if at.fence is not None and at.journal.entry.fence_attempt == directive.attempt:
            # Proving a large save takes long: the others see by this record that it moves.
            await self.say(Place(at.fence, directive.attempt, ReadyState.STOPPED))
        await storing.vetted.wait()
        if at.fence is None or at.journal.entry.fence_attempt != directive.attempt:
            raise AttemptFailed(Reason.PREPARE_FAILED, "the fence of this attempt is not held")
        return at.fence

    async def _choice(self, agreement: Agreement, directive: Directive, fence: int) -> Resume:
        everyone = directive.world_size
        if self._storing is None:

            def chosen(record: FenceRecord | None, _: Said) -> Resume | None:
                return record.choice if record is not None else None

            return await self._until(
                chosen,
                agreement,
                directive,
                fence=fence,
                what="chosen",
                patience=FENCE_SECONDS,
            )

        def stopped(record: FenceRecord | None, said: Said) -> tuple[FenceRecord, Said] | None:
            return (record, said) if record is not None and len(said) == everyone else None

        record, said = await self._until(
            stopped,
            agreement,
            directive,
            fence=fence,
            what="stopped its older trainer",
            patience=FENCE_SECONDS,
        )
        if record.choice is not None:
            return record.choice
        chosen_now = self._choose(directive, said)
        deadline = time.monotonic() + PIN_SECONDS
        while may_yet_be_pinned(chosen_now, self._at.candidates) and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_SECONDS)
            said = await self._ask(agreement.said, fence=fence, attempt=directive.attempt)
            chosen_now = self._choose(directive, said)
        if isinstance(chosen_now, rules.NoChoice):
            raise AttemptFailed(chosen_now.reason, chosen_now.message)
        log.info("chosen through the store: %s", chosen_now.why)
        answer = await self._ask(agreement.choose, fence=fence, choice=chosen_now.resume)
        return self._of(answer, fence).choice or chosen_now.resume

    def _choose(self, directive: Directive, said: Said) -> rules.Chosen | rules.NoChoice:
        wanted = self._storing.wanted if self._storing is not None else None
        return choose(self._at, directive, said, wanted=wanted)

    async def _go(self, agreement: Agreement, directive: Directive, fence: int) -> None:
        everyone = directive.world_size
        if self._storing is None:

            def gone(record: FenceRecord | None, _: Said) -> float | None:
                return record.go_at if record is not None else None

            await self._until(gone, agreement, directive, fence=fence, what="restored the save")
            return

        def restored(_: FenceRecord | None, said: Said) -> bool | None:
            ready = [r for r in said.values() if _ORDER[r.state] >= _ORDER[ReadyState.RESTORED]]
            return len(ready) == everyone or None

        await self._until(restored, agreement, directive, fence=fence, what="restored the save")
        self._of(await self._ask(agreement.go, fence=fence), fence)

    def _of(self, answer: object, fence: int) -> FenceRecord:
        record = getattr(answer, "record", None)
        if isinstance(record, FenceRecord):
            return record
        by = answer.by if isinstance(answer, FenceLost) else 0
        raise AttemptFailed(
            Reason.FENCE_TAKEN, f"fence {by} follows ours ({fence}): a newer attempt has begun"
        )

    async def _until(
        self,
        look: Callable[[FenceRecord | None, Said], T | None],
        agreement: Agreement,
        directive: Directive,
        *,
        fence: int | None,
        what: str,
        patience: float = STILL_SECONDS,
    ) -> T:
        """What `look` finds in the records. Ends when no rank has moved for long: AttemptFailed,
        which names those that are behind."""
        attempt = directive.attempt
        # Others give rank 0 the first word: it knows best who is behind.
        patience += 0 if self._storing is not None else 60
        self._moved, self._moved_at = (), time.monotonic()
        while True:
            if fence is None:
                record, said = await self._ask(agreement.fence_of, attempt), {}
            else:
                record = await self._ask(agreement.fence, fence)
                said = await self._ask(agreement.said, fence=fence, attempt=attempt)
            found = look(record, said)
            if found is not None:
                return found
            if self.still_for(said) > patience:
                behind = _behind(said, size=directive.world_size, own=self._at.site.config.rank)
                raise AttemptFailed(
                    Reason.PREPARE_FAILED,
                    f"rank {', '.join(map(str, behind[:8]))} has not {what}: nothing moved for "
                    f"{patience:.0f} s in the records of fence {fence}",
                    ranks=behind,
                )
            await asyncio.sleep(LOOK_SECONDS)

    def still_for(self, said: Said) -> float:
        """Seconds since any of these records said something new."""
        moved = tuple(
            (r.rank, r.state, r.moved, r.step, r.probing, tuple(r.pinned))
            for r in sorted(said.values(), key=lambda r: r.rank)
        )
        if moved != self._moved:
            self._moved, self._moved_at = moved, time.monotonic()
        return time.monotonic() - self._moved_at

    async def _ask(self, call: Callable[..., T], /, *args: object, **kwargs: object) -> T:
        """The call's answer; asked again while the store has a problem, for a while."""
        deadline = time.monotonic() + STILL_SECONDS
        while True:
            try:
                answer = await asyncio.to_thread(call, *args, **kwargs)
            except StoreProblem as problem:
                self._at.reporter.degrade(KEY, problem.reason, problem.message)
                if time.monotonic() > deadline:
                    raise AttemptFailed(Reason(problem.reason), problem.message) from problem
                await asyncio.sleep(2.0)
                continue
            self._at.reporter.heal(KEY)
            return answer

    # --- telling ---

    async def say(self, place: Place) -> None:
        self.place = place
        await self._ask(self.write)

    def write(self) -> None:
        """This rank's record, if it says something new. Blocking."""
        with self._telling:
            self._write_now()

    def _write_now(self) -> None:
        at, place, run = self._at, self.place, self._at.run
        if place is None or run is None:
            return
        report = at.reporter.current
        # Names change what can be chosen; steps and bytes only show movement.
        stall, probing = _short(report.stall), ticks_of(report.trial)
        silence = (stall.standing, stall.since, bool(stall.stacks)) if stall is not None else None
        words = (place, tuple(report.pinned), tuple(report.shares), silence, len(report.flights))
        # A record that stays as it was may be one of a sidecar that is gone.
        beat = int(time.monotonic() / TELL_SECONDS) if stall is not None else 0
        moves = (at.fetching, report.progress.step, probing, beat)
        is_due = time.monotonic() - self._told_at > TELL_SECONDS
        if self._told == (words, moves) or (self._told[:1] == (words,) and not is_due):
            return
        address = at.site.address
        run.agreement.say(
            fence=place.fence,
            attempt=place.attempt,
            pod_uid=at.site.pod_uid,
            state=place.state,
            pinned=report.pinned,
            shares=report.shares,
            url=contract.sidecar_url(address, port=at.site.port) if address else None,
            moved=at.fetching,
            step=report.progress.step,
            probing=probing,
            stall=stall,
            flights=report.flights if stall is not None else (),
        )
        self._told, self._told_at = (words, moves), time.monotonic()


def _short(stall: StallView | None) -> StallView | None:
    return stall and stall.model_copy(update={"stacks": stall.stacks[:STALL_LINES]})


def _behind(said: Said, *, size: int, own: int) -> list[int]:
    """The ranks that have said least; never the one that asks."""
    places = {
        rank: _ORDER[said[rank].state] if rank in said else -1
        for rank in range(size)
        if rank != own
    }
    least = min(places.values(), default=-1)
    return [rank for rank, place in places.items() if place == least]
