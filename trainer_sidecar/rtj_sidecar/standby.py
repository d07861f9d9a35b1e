"""The sidecar of a spare: it waits for a rank, ready to take any at once.

A spare has no rank until a directive gives it one; that directive is journalled, and from then on
the pod plays this rank for as long as it lives, through every restart of its sidecar. Only then is
an agent made, so no part of one ever sees a pod without a rank. Must never write to the store,
never start a trainer, and never take a second rank.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from aiohttp import web
from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.wire import Directive, Release, StandbyView, SupervisorState

from rtj_sidecar.config import Site
from rtj_sidecar.directives import DirectiveFile, accept, warm_up
from rtj_sidecar.fetching_ahead import FetchingAhead
from rtj_sidecar.journal import Journal
from rtj_sidecar.messages import PeerSave, Seen, Ships
from rtj_sidecar.opening import open_run
from rtj_sidecar.report import Reporter
from rtj_sidecar.server import PinnedFile, make_app
from rtj_sidecar.traffic import Traffic
from rtj_sidecar.trainer.supervisor_link import SupervisorLink

TICK_SECONDS = 0.01
BEAT_SECONDS = 5.0
WELL_SECONDS = 30.0
ABANDONED_SECONDS = 1800.0  # no operator asked for so long: what the pod holds is freed

log = logging.getLogger("rtj.sidecar")


def placed(site: Site, directive: Directive) -> Site:
    """The same pod as the rank that this directive gave it: as that it was made no sooner, and of
    what another pod saved as that rank it knows nothing."""
    known = {"rank": directive.rank, "made_in": directive.attempt}
    return replace(site, config=site.config.model_copy(update=known))


class Standby:
    """`until_placed` ends with the site that an agent is made for."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._link = SupervisorLink(site.root)
        self._file = DirectiveFile(site.directive)
        self._supervisor: SupervisorState | None = None
        self._ticked = self._contact = time.monotonic()

    async def until_placed(self) -> Site:
        """At once where an earlier process of this sidecar was placed. Raises OSError where its
        port is taken."""
        site, link = self._site, self._link
        await asyncio.to_thread(link.install, site.for_supervisor)
        journal = Journal(link.run / contract.FILE_SIDECAR_JOURNAL)
        if journal.entry.directive is not None:
            return placed(site, journal.entry.directive)
        if journal.unreadable:
            log.error("journal: %s", journal.unreadable)
        reporter = Reporter(
            job_uid=site.config.job_uid, pod_uid=site.pod_uid, rank=contract.NO_RANK
        )
        reporter.set(standby=StandbyView(spare=site.config.spare or 0))
        ahead = FetchingAhead(site, reporter, open_run(site.config, reporter=reporter))
        runner = await self._serve(reporter, ahead)
        others = [
            asyncio.create_task(work)
            for work in (self._beat_loop(), self._leave_loop(), ahead.loop(self._is_touchable))
        ]
        log.info("spare %s waits for a rank", site.config.spare)
        try:
            directive = await self._placed_by(reporter, journal, others)
        finally:
            for task in others:
                task.cancel()
            await ahead.stop()
            await runner.cleanup()
        log.info("spare %s plays rank %d from now on", site.config.spare, directive.rank)
        return placed(site, directive)

    async def _placed_by(
        self, reporter: Reporter, journal: Journal, others: list[asyncio.Task[None]]
    ) -> Directive:
        """The first directive that is meant for this pod, once the journal holds it."""
        seen: tuple[int, int] | None = None
        wanted: Directive | None = None
        while True:
            self._ticked = time.monotonic()
            for task in others:
                if task.done():
                    task.result()  # an error nobody expected ends the process, which comes back
            changed = self._link.state_changed(seen)
            state = self._link.state() if changed is not None else None
            if state is not None:
                seen, self._supervisor = changed, state
                reporter.set(
                    supervisor_seen=True,
                    trainer=state.trainer,
                    terminating=state.term_received_at is not None,
                )
            wanted = self._file.read() or wanted
            if self._file.problem is not None:
                reporter.degrade("directive", Reason.INVALID_SPEC, self._file.problem)
            if wanted is not None and self._is_for_us(wanted):
                try:
                    journal.write(directive=wanted, done=False)
                    return wanted
                except OSError as error:
                    text = f"the journal is not written: {error}"
                    reporter.degrade("journal", Reason.DISK_FULL, text)
                    await asyncio.sleep(1.0)
            await asyncio.sleep(TICK_SECONDS)

    def _is_for_us(self, directive: Directive) -> bool:
        config = self._site.config
        refused = accept(
            directive, job_uid=config.job_uid, pod_uid=self._site.pod_uid, highest=None
        )
        return refused is None

    def _is_touchable(self) -> bool:
        """The user's own init containers have ended, and nobody ends the pod."""
        state = self._supervisor
        return state is not None and state.term_received_at is None

    async def _leave_loop(self) -> None:
        """Let the trainer's container end: nothing here could be lost."""
        released = False
        while True:
            await asyncio.sleep(0.1)
            state = self._supervisor
            if state is None or released:
                continue
            silent = time.monotonic() - self._contact > ABANDONED_SECONDS
            if state.term_received_at is not None or silent:
                word = contract.MESSAGE_ABANDONED if silent else contract.MESSAGE_RELEASED
                self._link.release(Release(message=word))
                released = True

    async def _beat_loop(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._link.beat)
            await asyncio.sleep(BEAT_SECONDS)

    # --- HTTP ---

    async def _serve(self, reporter: Reporter, ahead: FetchingAhead) -> web.AppRunner:
        config = self._site.config

        def metrics(accept: str) -> tuple[bytes, str]:
            from rtj_sidecar.metrics import SidecarCollector, rendered

            collector = SidecarCollector(
                namespace=config.namespace,
                job=config.job,
                report=lambda: reporter.current,
                traffic=lambda: Traffic(from_store=ahead.fetched_bytes),
            )
            return rendered(collector, accept=accept)

        app = make_app(reporter=reporter, peers=self, metrics=metrics)

        @web.middleware
        async def contact(
            request: web.Request,
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        ) -> web.StreamResponse:
            if request.path == contract.PATH_STATUS:
                self._contact = time.monotonic()
            return await handler(request)

        app.middlewares.append(contact)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._site.bind, self._site.port, reuse_address=True).start()
        except OSError:
            await runner.cleanup()
            raise
        # What the first pushed directive needs, soon after this pod has a rank.
        self._warming = asyncio.create_task(asyncio.to_thread(warm_up))
        return runner

    def is_well(self) -> bool:
        return time.monotonic() - self._ticked < WELL_SECONDS

    def told(self, body: bytes, *, signature: str) -> None:
        raise PermissionError("no annotation has named a key yet")

    async def ships(self, *, since: int | None, wait: float) -> Ships:
        return Ships(version=0)

    async def heard(self, seen: Seen) -> None:
        raise ValueError("a spare names no saves: ask rank 0")

    def pinned_file(self, name: str, path: str) -> PinnedFile | None:
        return None

    async def describe(self, name: str) -> PeerSave | None:
        return None
