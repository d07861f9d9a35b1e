"""Prepare: from whatever an older attempt left to the point where a save can be chosen.

Must never touch the directory while an older trainer may still write it, never claim a fence before
what that trainer saved has its names, and never wait for a store without an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial

from rtj_api.reasons import Reason
from rtj_api.wire import Directive, SidecarPhase, Stop

from rtj_sidecar.adopting import adopt_directory
from rtj_sidecar.background import Background
from rtj_sidecar.failing import AttemptFailed, until_stopped
from rtj_sidecar.holding import Holding
from rtj_sidecar.looking import Looking
from rtj_sidecar.selffence import SelfFence
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.storing import Storing
from rtj_sidecar.trials import begin_attempt

LIST_SECONDS = 15.0
HEAR_SECONDS, HEAR_NOTHING_SECONDS = 3.0, 0.5


class Preparing:
    """`holding` and `storing` only on rank 0."""

    def __init__(
        self,
        station: Station,
        looking: Looking,
        shipping: Shipping,
        holding: Holding | None,
        storing: Storing | None,
        fence: SelfFence,
        behind: Background,
    ) -> None:
        self._at = station
        self._looking = looking
        self._shipping = shipping
        self._holding = holding
        self._storing = storing
        self._fence = fence
        self._behind = behind

    async def prepare(self, directive: Directive) -> None:
        """Up to Prepared; what cannot be told yet is asked on behind. Raises AttemptFailed."""
        at = self._at
        if at.reporter.current.terminating:
            raise AttemptFailed(Reason.POD_DELETED, "this pod is being ended: it prepares nothing")
        self._behind.cancel()
        at.may_publish = False
        begin_attempt(at, directive)
        at.settled = False
        at.overtaken = False
        at.fetching = 0
        at.reporter.set(listed=None, fence_owner=None, directory=None)
        at.set_phase(SidecarPhase.STOPPING)
        at.link.stop(Stop(attempt=directive.attempt - 1, grace_seconds=directive.grace_seconds))
        must_wait = directive.grace_seconds is not None or at.supervisor is None
        if self._fence.claims and must_wait:
            # The others have their grace, too; and the directory is touched only when the
            # user's own init containers have ended.
            await until_stopped(at, directive.attempt - 1)
        if not await self._fence.claim(directive):
            return
        claiming: asyncio.Task[None] | None = None
        if self._storing is not None and at.fence is None:
            # No save can need a name under an older fence: the store need not wait for the pod.
            claiming = self._behind.start(partial(self._storing.claim_and_list, directive))
        await until_stopped(at, directive.attempt - 1)
        if at.reporter.current.phase is not SidecarPhase.FAILED:  # by a claim that was refused
            at.set_phase(SidecarPhase.PREPARING)
        await self._looking.once_more()
        at.settled = True
        self._looking.tell()
        await self._shipping.telling.tell()
        if self._storing is not None:
            if claiming is None:
                await self.name_leftovers(directive)
                claiming = self._behind.start(partial(self._storing.claim_and_list, directive))
            await self.until_listed(claiming)
            if at.reporter.current.phase is SidecarPhase.FAILED:
                return
            # A beginning that a person asked for is being copied in, perhaps: nothing beside it.
            if self._storing.listed.is_set() and directive.wanted is None:
                await self._adopt()
                if at.reporter.current.phase is SidecarPhase.FAILED:
                    return
        at.tell_pins()
        at.set_phase(SidecarPhase.PREPARED)

    async def name_leftovers(self, directive: Directive) -> None:
        """Saves that finished but have no name get one under the fence of the attempt before."""
        at, holding, storing = self._at, self._holding, self._storing
        if (
            holding is None
            or storing is None
            or at.journal.entry.fence_attempt >= directive.attempt
        ):
            return
        begun = time.monotonic()
        while directive.world_size > 1 and not holding.word.all_final():
            # A lost rank says nothing; the others are quick, and a new pod has nothing to tell.
            patience = HEAR_SECONDS if holding.has_unnamed else HEAR_NOTHING_SECONDS
            if time.monotonic() - begun > patience:
                break
            await asyncio.sleep(0.02)
        knows = False
        with contextlib.suppress(TimeoutError, StoreProblem):
            knows = await asyncio.wait_for(storing.recalling.know_records(), LIST_SECONDS)
        if not knows:
            return  # a share of what has its name already would get one of its own
        with contextlib.suppress(TimeoutError):
            # Names only: what has its parts is rolled forward under the new fence, at once.
            await asyncio.wait_for(holding.work(final=True, may_commit=False), LIST_SECONDS)
        await self._shipping.match_own()

    async def until_listed(self, claiming: asyncio.Task[None]) -> None:
        """At most 15 s: then the choice goes on without the store, which is asked on; or, where
        it answered and a large save is still being proved, with what it listed: restore waits."""
        done, _ = await asyncio.wait({claiming}, timeout=LIST_SECONDS)
        if done:
            claiming.result()
            return
        has_answered = self._storing is not None and self._storing.listed.is_set()
        if has_answered:
            self._at.tell_candidates()
        self._at.reporter.set(listed=has_answered)

    async def _adopt(self) -> None:
        if self._holding is not None:
            writers = self._looking.writers(gone=True)
            await adopt_directory(
                self._at, shipping=self._shipping, holding=self._holding, writers=writers
            )
