"""Every rank's round: tell the holder what finished, hear its list, answer it, learn what became.

Must never report a pod as drained while something that finished in it would be lost with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from aiohttp import ClientError, ClientTimeout
from pydantic import ValidationError
from rtj_api import contract

from rtj_sidecar.fates import Fates, newest_durable
from rtj_sidecar.holding import Holding
from rtj_sidecar.looking import Looking
from rtj_sidecar.messages import OpenShip, Ships
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.telling import TELL_SECONDS, Telling
from rtj_sidecar.uploading import Uploading
from rtj_sidecar.waits import happens

POLL_SECONDS = 25.0
FALLBACK_SECONDS = 15.0
HOLDERLESS_SECONDS = 2.0  # then twice as long, and so on


class Shipping:
    """`holding` only on rank 0."""

    def __init__(self, station: Station, looking: Looking, holding: Holding | None) -> None:
        self._at = station
        self._looking = looking
        self._holding = holding
        self._ships = Ships(version=0)
        self.fates = Fates(station, looking)
        self.telling = Telling(station, holding)
        self.uploading = Uploading(station, self.fates)

    @property
    def ships(self) -> Ships:
        """The holder's list, as heard last."""
        return self._ships

    @property
    def newest_durable(self) -> str | None:
        return newest_durable(self._ships)

    async def holders(self, name: str) -> list[str]:
        """Where other sidecars answer that have files of a durable save, by rank 0's word now."""
        at, url = self._at, self._at.holder_url
        known = self._holding.list.now() if self._holding is not None else self._ships
        if url is not None:
            with contextlib.suppress(ClientError, TimeoutError, OSError, ValidationError):
                timeout = ClientTimeout(total=10, connect=3)
                async with at.http.get(
                    url + contract.PATH_SHIPS, timeout=timeout, allow_redirects=False
                ) as answer:
                    known = Ships.model_validate_json(await answer.read())
        told = known.holders.get(name) or ([url] if url is not None else [])
        return [each.rstrip("/") for each in told if each != at.own_url]

    @property
    def fence(self) -> int | None:
        """The run's, as this rank knows it."""
        return self._at.fence if self._holding is not None else self._ships.fence

    def is_drained(self) -> bool:
        """Whether nothing that finished here would be lost with this pod."""
        at = self._at
        if at.run is None or at.overtaken:
            return True  # whoever has a shared directory now finds the pins in it
        if not at.settled or self._looking.may_find_more:
            return False
        pending = [save for save in at.directory.saves if save.is_pending]
        is_away = at.reporter.current.terminating and all(s.record.part_done for s in pending)
        if self._holding is not None:
            is_done = not pending and self._holding.is_idle()
            return is_done or (is_away and self._holding.is_left_to_others())
        if at.reporter.current.terminating:
            return is_away  # whoever holds the fence can commit it without this pod
        # Not before the holder says so: else the job could be over while it still commits.
        return not pending

    async def match_own(self) -> None:
        """Let this rank's pins bear the names that the holder has just given."""
        if self._holding is not None:
            self._ships = self._holding.list.now()
        for ship in self._ships.ships:
            local = self.uploading.match(ship)
            if local is not None:
                await self.fates.bear(local, ship.record)

    async def give_up_leftovers(self) -> None:
        """At the go: finished saves of older attempts that never got a name stay without one.

        Nor is one waited for that a zombie has named in a shared directory after this attempt had
        listed the run: nobody will commit it.
        """
        at = self._at
        is_known = self._holding is not None and at.may_publish
        names = self._holding.list.known_names if self._holding is not None else set()
        for save in at.directory.saves:
            name = save.record.name
            if save.is_pending and (name is None or (is_known and name not in names)):
                log.info("left behind: %s", save.record.facts.root_key)
                await self.fates.remember(save, over=f"left behind by attempt {at.attempt}")
        if self._holding is not None:
            self._holding.give_up_leftovers()
            self._holding.word.forget_ends()

    async def name_the_last(self, *, seconds: float) -> None:
        """The trainer ended: let its last save have a name before anybody chooses."""
        at = self._at
        deadline = time.monotonic() + seconds
        await self.telling.tell()
        while self._holding is not None and at.may_publish and time.monotonic() < deadline:
            await self._holding.work()
            await self.match_own()
            if all(s.record.name for s in at.directory.saves if s.is_pending):
                return
            self._ships = self._holding.list.now()
            await self.fates.learn(self._ships)
            await asyncio.sleep(0.02)

    # --- loops ---

    async def loop(self) -> None:
        """Tell, answer, name, commit, whenever something changed."""
        at = self._at
        while True:
            await happens(at.ship_now, seconds=self._patience())
            at.ship_now.clear()
            await self.round()

    def _patience(self) -> float:
        wake = self._holding.wake_at if self._holding is not None else None
        left = TELL_SECONDS if wake is None else max(0.05, wake - time.monotonic())
        return min(TELL_SECONDS, left)

    async def round(self) -> None:
        """Tell, name, commit, learn. What is to be uploaded goes beside it: see Uploading."""
        await self.telling.tell()
        if self._holding is not None:
            if self._at.may_publish:
                await self._holding.work()
            self._ships = self._holding.list.now()
        self.uploading.hear(self._ships)
        await self.fates.learn(self._ships)

    async def listen_loop(self) -> None:
        """Other ranks: hear of ships by long poll, from the store where the holder is silent."""
        at = self._at
        silent_since: float | None = None
        alone_since, ask_after = time.monotonic(), HOLDERLESS_SECONDS
        while True:
            url = at.holder_url
            if url is None:
                # Rank 0 has no pod: what the one before has named, this rank may have to answer
                # before the next one is there, and chooses. A large gang asks seldom.
                if time.monotonic() - alone_since >= ask_after:
                    ask_after *= 2
                    if not at.site.holds and self._ships.fence is not None:
                        await self._ask_store()
                await asyncio.sleep(0.2)
                continue
            alone_since, ask_after = time.monotonic(), HOLDERLESS_SECONDS
            try:
                query = {"since": str(self._ships.version), "wait": str(POLL_SECONDS)}
                timeout = ClientTimeout(total=POLL_SECONDS + 10, connect=5)
                async with at.http.get(
                    url + contract.PATH_SHIPS, params=query, timeout=timeout, allow_redirects=False
                ) as answer:
                    answer.raise_for_status()
                    self._ships = Ships.model_validate_json(await answer.read())
                silent_since = None
                if self._ships.question != at.question:
                    at.question = self._ships.question
                    at.look_now.set()
                at.ship_now.set()
            except (ClientError, TimeoutError, OSError, ValidationError):
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > FALLBACK_SECONDS:
                    await self._ask_store()
                    silent_since = time.monotonic()
                await asyncio.sleep(0.5)

    async def _ask_store(self) -> None:
        run, at = self._at.run, self._at
        if run is None:
            return
        with contextlib.suppress(StoreProblem):
            fence = self._ships.fence
            if fence is None:  # the holder was never heard, by a rule of the network perhaps
                record = await asyncio.to_thread(run.newest_fence)
                own = record is not None and record.job_uid == at.site.config.job_uid
                fence = record.fence if own and record.attempt == at.attempt else None
            if fence is None:
                return
            found = await asyncio.to_thread(run.publishing.read_ships, fence=fence, since=0)
            known = {ship.record.name for ship in self._ships.ships}
            new = [
                OpenShip(record=s) for s in found if s.name not in known | self.uploading.answered
            ]
            if new:
                self._ships = self._ships.model_copy(update={"ships": [*self._ships.ships, *new]})
                self._at.ship_now.set()
