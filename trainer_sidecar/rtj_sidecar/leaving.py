"""When the trainer's container may end: the pod is ended and drained, or nobody asks any more.

Must never let it end while a finished save would be lost with the pod, and never wait without an
end either: a drain has its time, and GPUs that nobody manages are freed.
"""

from __future__ import annotations

import asyncio
import time

from rtj_api import contract
from rtj_api.wire import Release

from rtj_sidecar.ending import Ending
from rtj_sidecar.looking import Looking
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station, log

ABANDONED_SECONDS = 1800.0
GIVEN_UP_SECONDS = 4 * ABANDONED_SECONDS  # also with a save that no store takes: GPUs are freed


class Leaving:
    """Watches the supervisor's word and the operator's silence."""

    def __init__(
        self, station: Station, looking: Looking, shipping: Shipping, ending: Ending
    ) -> None:
        self._at = station
        self._looking = looking
        self._shipping = shipping
        self._ending = ending

    async def loop(self) -> None:
        """Let the trainer's container end: when the pod is ended and drained, or abandoned."""
        at = self._at
        idle_since = time.monotonic()
        while True:
            await asyncio.sleep(0.1)
            state = at.supervisor
            if state is None or at.is_training:
                idle_since = time.monotonic()
                continue
            if state.term_received_at is not None:
                overdue = time.time() - state.term_received_at > at.site.config.drain_seconds
                if overdue or await self._is_drained_for_good():
                    await self._ending.say_ending()
                    log.info("released: %s", "drain time is over" if overdue else "drained")
                    at.link.release(Release(message=contract.MESSAGE_RELEASED))
                    await asyncio.sleep(5)
            elif (
                # A trainer may have run for hours without an operator that hears of it.
                (silent := time.monotonic() - max(at.contact, idle_since)) > ABANDONED_SECONDS
                and (silent > GIVEN_UP_SECONDS or self._shipping.is_drained())
            ):
                log.warning("no operator for %d s: abandoned", silent)
                at.link.release(Release(message=contract.MESSAGE_ABANDONED))
                await asyncio.sleep(60)

    async def _is_drained_for_good(self) -> bool:
        at = self._at
        if not at.settled:
            await self._looking.look(gone=True)
            at.settled = True
            at.ship_now.set()
        return self._shipping.is_drained()
