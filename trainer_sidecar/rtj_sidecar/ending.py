"""The end of a trainer, and of its attempt: what it saved is saved, and how it ended is told.

Must never report a pod as drained while something that finished in it would be lost with it, and
never wait for a store longer than that takes where nothing depends on it (a log, an outcome).
"""

from __future__ import annotations

import asyncio
import contextlib

from rtj_api import contract
from rtj_api.wire import Directive, SidecarPhase

from rtj_sidecar.kept_logs import KeptLogs
from rtj_sidecar.looking import Looking
from rtj_sidecar.outputs import Outputs
from rtj_sidecar.runs.records import Outcome
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.suspects import Suspects

SETTLE_SECONDS = 2.0
OUTCOME_SECONDS = 10.0


class Ending:
    """After the trainer of this attempt ended, by itself or because it was stopped."""

    def __init__(self, station: Station, looking: Looking, shipping: Shipping) -> None:
        self._at = station
        self._looking = looking
        self._shipping = shipping
        self.logs = KeptLogs(station, path=station.link.run / contract.FILE_LOG)
        self.suspects = Suspects(station)
        self._outputs = Outputs(station)

    async def trainer_ended(self, *, of: Directive | None) -> None:
        """The trainer of this attempt ended by itself, or was stopped: save what it saved. `of`:
        see `drain`."""
        at = self._at
        await self._looking.once_more()
        if at.directive != of:
            return
        at.settled = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._shipping.name_the_last(seconds=SETTLE_SECONDS)
        if at.directive != of:
            return
        at.reporter.set(settling=False)
        at.ship_now.set()

    async def drain(self, *, of: Directive | None) -> None:
        """Until nothing that finished here is left that is not durable. `of`: the directive that
        this is the end of; with a later one nothing is said, for its attempt has a phase of its
        own, and a cancellation may have been swallowed by what was waited for here."""
        at = self._at
        await asyncio.sleep(0)
        if at.directive == of and (self._outputs.is_due() or not self._shipping.is_drained()):
            at.set_phase(SidecarPhase.DRAINING)
        while not self._shipping.is_drained():
            at.ship_now.set()
            await asyncio.sleep(0.1)
        while self._outputs.is_due():
            await self._outputs.ship(fence=self._shipping.fence)
            await asyncio.sleep(0.1)
        await self.logs.away()
        if at.directive != of:
            return
        self._looking.tell()
        if at.site.holds:
            await self.suspects.last_look()
            if at.directive != of:
                return
        at.set_phase(SidecarPhase.DRAINED)

    async def say_ending(self) -> None:
        """The operator said that the job is over: the fence says it too, and another may go on."""
        directive = self._at.directive
        if directive is not None and directive.ending in (Outcome.FAILED, Outcome.RELEASED):
            await self.set_outcome(Outcome(directive.ending))

    async def set_outcome(self, outcome: Outcome) -> None:
        """In the fence, where this rank holds it and the store answers in time."""
        run, fence = self._at.run, self._at.fence
        if not self._at.site.holds or run is None or fence is None:
            return
        with contextlib.suppress(StoreProblem, TimeoutError):
            async with asyncio.timeout(OUTCOME_SECONDS):
                await asyncio.to_thread(run.set_outcome, fence=fence, outcome=outcome)
            log.info("the run is %s", outcome.value)
