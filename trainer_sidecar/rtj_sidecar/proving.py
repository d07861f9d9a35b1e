"""Rank 0 proves what a choice may fall on: the newest saves, or the beginning that was asked for.

Everything that is fetched for it is fetched to where the restore will look. Must never let a save
be chosen that was found bad, nor another beginning in place of the one that was asked for.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from rtj_api.contract import HIDDEN_DIR
from rtj_api.wire import Candidate, Found, TransferKind, Verdict, Wanted

from rtj_sidecar.cancelling import OneAtATime
from rtj_sidecar.holding import Holding
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.run import Run
from rtj_sidecar.station import Station


class Proving:
    """Only on rank 0."""

    def __init__(self, station: Station, holding: Holding) -> None:
        self._at = station
        self._holding = holding
        self._imports = OneAtATime()

    async def vet(self, run: Run, candidates: list[Candidate], *, fence: int) -> list[Candidate]:
        """Newest first, until one is whole. Raises StoreProblem."""
        at, tried = self._at, self._at.tried(candidates)
        pinned = set(at.reporter.current.shares) | self._holding.word.pinned_by_others()
        first = next((c for c in tried if c.durable and c.invalid is None), None)
        size = first.bytes if first is not None and first.name not in pinned else 0
        name = first.name if first is not None else ""
        with at.transfers.under_way(TransferKind.RESTORE, name, size, also=at.fetched) as count:
            return await asyncio.to_thread(
                run.judging.vet,
                tried,
                pinned=pinned,
                incoming=at.site.path / HIDDEN_DIR / "incoming",
                most=at.site.config.max_restore_bytes,
                fence=fence,
                progress=count,
                cancel=at.closing,
            )

    async def beginning(self, run: Run, history: History, *, wanted: Wanted, fence: int) -> Found:
        """The one that was asked for, copied into the run and proved. Raises StoreProblem."""
        at, config = self._at, self._at.site.config
        find = partial(
            run.find,
            history,
            wanted=wanted,
            fence=fence,
            incoming=at.site.path / HIDDEN_DIR / "importing" / f"f{fence}",
            progress=at.fetched,
            layout=config.layout,
            include=tuple(config.include),
        )
        found = await self._imports.call(find, closing=at.closing)
        if found.save is not None:
            found = await self._proved(run, found, found.save, fence=fence)
        return found

    async def _proved(self, run: Run, found: Found, save: Candidate, *, fence: int) -> Found:
        (judged,) = await self.vet(run, [save], fence=fence)
        history = await asyncio.to_thread(run.history)
        self._at.journal.note(next_n=await asyncio.to_thread(run.next_n, history, fence))
        if judged.invalid is None:
            return found.model_copy(update={"save": judged})
        self.tell_invalid([judged], run=run, history=history)
        why = run.judging.why_invalid(history, judged.name) or judged.invalid
        return Found(asked=found.asked, problem=f"{judged.name} is not valid: {why}")

    def tell_invalid(self, candidates: list[Candidate], *, run: Run, history: History) -> None:
        for found in candidates:
            if found.invalid is not None:
                why = (
                    run.judging.why_invalid(history, found.name) or f"{found.name}: {found.invalid}"
                )
                self._at.reporter.add_verdict(
                    Verdict(
                        name=found.name,
                        step=found.step,
                        reason=found.invalid,
                        message=why,
                        at=time.time(),
                    )
                )
