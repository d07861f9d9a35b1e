"""How the ranks of one attempt agree through the store, where no report reaches the operator.

Rank 0 writes into its fence what all restore, when they may start and how it ended; every rank
says in a record of its own how far it is, and reads the fence. Must never take a record of another
attempt for one of this: each is stamped, and a fence belongs to one attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtj_api.wire import FlightView, Resume, StallView

from rtj_sidecar.runs import fence as fences
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import Done, FenceLost
from rtj_sidecar.runs.records import FenceRecord, Outcome, ReadyRecord, ReadyState


@dataclass(frozen=True, slots=True)
class Agreement:
    """All methods raise StoreProblem where the store fails."""

    context: Context

    def fence_of(self, attempt: int) -> FenceRecord | None:
        """The newest fence, if it is this attempt's of this job; None while it is not claimed."""
        newest = self.context.highest_fence()
        found = self.context.read(keys.fence_key(newest), FenceRecord) if newest else None
        if found is None:
            return None
        record = found[0]
        is_ours = (record.owner, record.attempt) == (self.context.owner, attempt)
        return record if is_ours else None

    def fence(self, number: int) -> FenceRecord | None:
        found = self.context.read(keys.fence_key(number), FenceRecord)
        return found[0] if found is not None else None

    def say(
        self,
        *,
        fence: int,
        attempt: int,
        pod_uid: str,
        state: ReadyState,
        pinned: Sequence[str] = (),
        shares: Sequence[str] = (),
        url: str | None = None,
        moved: int = 0,
        step: int | None = None,
        probing: int = 0,
        stall: StallView | None = None,
        flights: Sequence[FlightView] = (),
    ) -> None:
        """Write this rank's own record."""
        record = ReadyRecord(
            fence=fence,
            rank=self.context.rank,
            attempt=attempt,
            pod_uid=pod_uid,
            state=state,
            pinned=list(pinned),
            shares=list(shares),
            url=url,
            moved=moved,
            step=step,
            probing=probing,
            stall=stall,
            flights=list(flights),
            written_at=self.context.now(),
        )
        key = keys.ready_key(fence, self.context.rank)
        self.context.write(key, record, condition=None)

    def said(self, *, fence: int, attempt: int) -> dict[int, ReadyRecord]:
        """By rank, what the ranks of that attempt last wrote."""
        listed = self.context.keys(f"{keys.READY}f{fence}/")
        ranks = [found[1] for key in listed if (found := keys.parse_ready(key)) is not None]
        read = self.context.map(
            lambda rank: self.context.read(keys.ready_key(fence, rank), ReadyRecord), ranks
        )
        records = [found[0] for found in read if found is not None]
        return {r.rank: r for r in records if r.attempt == attempt}

    def choose(self, *, fence: int, choice: Resume) -> Done | FenceLost:
        return fences.set_choice(self.context, fence=fence, choice=choice)

    def go(self, *, fence: int) -> Done | FenceLost:
        return fences.set_go(self.context, fence=fence)

    def complete(self, *, fence: int) -> Done | FenceLost:
        """All ranks have drained: the run is done."""
        return fences.set_outcome(self.context, fence=fence, outcome=Outcome.COMPLETE)
