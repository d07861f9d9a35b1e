"""Telling rank 0 what this rank saw finish: to the holder beside it, or by a message.

Must never tell less than what lies in the pins: a save that is not told gets no name.
"""

from __future__ import annotations

import asyncio
import time

from aiohttp import ClientError, ClientTimeout
from rtj_api import contract

from rtj_sidecar.holding import Holding
from rtj_sidecar.messages import Seen, SeenSave
from rtj_sidecar.station import Station

TELL_SECONDS = 2.0


class Telling:
    """`holding` only on rank 0."""

    def __init__(self, station: Station, holding: Holding | None) -> None:
        self._at = station
        self._holding = holding
        self._told: Seen | None = None
        self._told_at = 0.0
        self._busy = asyncio.Lock()  # an older word must not come after a newer one

    def seen(self) -> Seen:
        at = self._at
        records = [save.record for save in at.directory.saves]
        unnamed = [s for s in at.directory.saves if s.is_pending and s.record.name is None]
        shared = at.site.config.shared_directory
        return Seen(
            job_uid=at.site.config.job_uid,
            rank=at.site.config.rank,
            attempt=at.attempt,
            saves=[
                SeenSave(
                    fingerprint=save.pin.fingerprint,
                    attempt=save.record.attempt,
                    ordinal=save.record.ordinal,
                    facts=save.record.facts,
                    paths=[file.path for file in save.pin.files],
                    sizes=[file.stamp.size for file in save.pin.files],
                    bytes=save.bytes,
                    seen_at=save.record.seen_at,
                    writing_seconds=save.record.writing_seconds,
                )
                for save in unnamed
            ],
            pinned=at.reporter.current.shares,
            parts=[r.name for r in records if r.part_done and r.name],
            final=at.settled,
            went=at.link.told_to_go(),
            url=at.own_url,
            answered=at.answered,
            is_writing=at.is_writing,
            unfinished=list(at.unfinished),
            open_paths=sorted(at.supervisor.open_for_writing) if shared and at.supervisor else None,
        )

    async def tell(self) -> None:
        """Tell the holder when something changed, and now and then while something waits."""
        async with self._busy:
            await self._tell()

    async def _tell(self) -> None:
        at, seen = self._at, self.seen()
        old = time.monotonic() - self._told_at
        if self._holding is not None:
            if seen != self._told or (seen.saves and old >= TELL_SECONDS):
                self._holding.hear(seen)
                self._told, self._told_at = seen, time.monotonic()
            return
        url = at.holder_url
        if url is None or (seen == self._told and (not seen.saves or old < TELL_SECONDS)):
            return
        try:
            async with at.http.post(
                url + contract.PATH_SEEN,
                data=seen.model_copy(update={"told_at": time.time()}).dump_json(),
                timeout=ClientTimeout(total=10, connect=3),
                allow_redirects=False,
            ) as answer:
                answer.raise_for_status()
            self._told, self._told_at = seen, time.monotonic()
        except (ClientError, TimeoutError, OSError):
            self._told = None  # The holder may be starting: again with the next round.
