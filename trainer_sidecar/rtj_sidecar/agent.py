"""The agent of one pod: its parts put together, started and ended together.

Whatever happens to it, the trainer goes on; a restarted agent continues from its journal. Must
never decide anything itself: `hearing` takes orders, `attempts` carries them out, `leaving` ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from functools import partial
from pathlib import Path

from aiohttp import ClientSession, web
from rtj_api import contract

from rtj_sidecar.answering import Answering
from rtj_sidecar.attempts import Attempts
from rtj_sidecar.checkpoints.deeper import Depth
from rtj_sidecar.checkpoints.types import Expectations
from rtj_sidecar.config import Site
from rtj_sidecar.directives import warm_up
from rtj_sidecar.directory import Directory
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.following import follow_progress
from rtj_sidecar.hearing import Hearing
from rtj_sidecar.holding import Holding
from rtj_sidecar.journal import Journal
from rtj_sidecar.leaving import Leaving
from rtj_sidecar.looking import Looking
from rtj_sidecar.mirroring import Mirroring
from rtj_sidecar.opening import open_run, take_place
from rtj_sidecar.prefetching import Prefetching
from rtj_sidecar.report import Reporter
from rtj_sidecar.selffence import SelfFence
from rtj_sidecar.server import make_app
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station, log
from rtj_sidecar.stopping import told_stop
from rtj_sidecar.storing import Storing
from rtj_sidecar.trainer.supervisor_link import SupervisorLink
from rtj_sidecar.trials import told_before

BEAT_SECONDS = 5.0
LOG_BACK_BYTES = 65536


class Agent:
    """`start`, then `run` until cancelled; `close` at the end."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._station: Station | None = None
        self._runner: web.AppRunner | None = None

    # --- composition ---

    async def start(self) -> None:
        """Install the supervisor, take up what an earlier agent left, answer HTTP."""
        site = self._site
        link = SupervisorLink(site.root)
        await asyncio.to_thread(link.install, site.for_supervisor)
        reporter = Reporter(
            job_uid=site.config.job_uid, pod_uid=site.pod_uid, rank=site.config.rank
        )
        journal = Journal(link.run / contract.FILE_SIDECAR_JOURNAL)
        if journal.unreadable:
            log.error("journal: %s", journal.unreadable)
        station = Station(
            site=site,
            link=link,
            journal=journal,
            reporter=reporter,
            directory=Directory(
                site.path,
                run_id=site.config.run_id,
                layout=site.config.layout,
                include=tuple(site.config.include),
                expect=Expectations(),
                depth=Depth(
                    numbers=site.config.validation_level == "full",
                    required=tuple(site.config.required_keys),
                ),
            ),
            run=open_run(site.config, reporter=reporter),
            http=ClientSession(trust_env=False, headers={contract.HEADER_JOB: site.config.job_uid}),
            loop=asyncio.get_running_loop(),
        )
        self._station = station
        holding = Holding(station) if site.holds else None
        self.looking = Looking(station, holding)
        self.holding = holding
        self.shipping = Shipping(station, self.looking, holding)
        storing = Storing(station, self.looking, holding) if holding is not None else None
        self.storing = storing
        self.fence = SelfFence(station)
        self.mirroring = Mirroring(station, self.looking, self.shipping)
        self.prefetching = Prefetching(station, self.shipping, self.mirroring)
        self.attempts = Attempts(
            station, self.looking, self.shipping, holding, storing, self.fence, self.prefetching
        )
        load = partial(self._load, station)
        self.hearing = Hearing(station, self.looking, self.attempts, load=load)
        self.leaving = Leaving(station, self.looking, self.shipping, self.attempts.ending)
        entry = journal.entry
        if entry.directive is not None:
            take_place(station, entry.directive)
            reporter.set(
                trial=told_before(entry),
                attempt=entry.directive.attempt,
                seq=entry.directive.seq,
                stop_step=told_stop(station, attempt=entry.directive.attempt),
                fence=entry.fence if entry.fence_attempt == entry.attempt else None,
            )
            self.hearing.go_on()
        if link.told_to_go():
            await self._load(station)
            station.begin_progress(back=LOG_BACK_BYTES)
        await self._serve(station)

    async def _load(self, station: Station) -> None:
        """Take up what earlier sidecars pinned; asked again while the directory does not answer."""
        state = station.supervisor
        if not self._site.touches_directory:
            return  # the pins in a shared directory are rank 0's
        try:
            if state is not None:
                await station.on_disk(station.directory.make, uid=state.uid, gid=state.gid)
            is_new = self._site.touches_directory and not station.link.told_to_go()
            await station.on_disk(station.directory.load, is_new=is_new)
            station.reporter.heal("pins")
        except DirectoryProblem as problem:
            station.reporter.degrade("pins", problem.reason, problem.message)
            later = lambda: asyncio.ensure_future(self._load(station))  # noqa: E731
            station.loop.call_later(2.0, later)

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        # Imported late: a new pod's gang waits for its first report, and nobody for this.
        from rtj_sidecar.metrics import SidecarCollector, rendered

        station = self.station
        collector = SidecarCollector(
            namespace=self._site.config.namespace,
            job=self._site.config.job,
            report=lambda: station.reporter.current,
            traffic=lambda: station.traffic,
        )
        return rendered(collector, accept=accept)

    async def _serve(self, station: Station) -> None:
        peers = Answering(station, self.hearing, self.holding)
        app = make_app(reporter=station.reporter, peers=peers, metrics=self._metrics)

        @web.middleware
        async def contact(request: web.Request, handler):  # type: ignore[no-untyped-def]
            if request.path == contract.PATH_STATUS:
                station.contact = time.monotonic()
            return await handler(request)

        app.middlewares.append(contact)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(
            self._runner, self._site.bind, self._site.port, reuse_address=True
        ).start()
        log.info("answers, %.2f s after its process began", _process_age())
        self._warming = asyncio.create_task(asyncio.to_thread(warm_up))

    @property
    def station(self) -> Station:
        if self._station is None:
            raise RuntimeError("the agent was not started")
        return self._station

    async def run(self) -> None:
        """Until cancelled. An unexpected error in any loop ends all of them and is raised."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hearing.watch_loop())
            group.create_task(self.hearing.carry_out_loop())
            group.create_task(self._beat_loop())
            group.create_task(follow_progress(self.station))
            group.create_task(self.station.tell_transfers())
            group.create_task(self.leaving.loop())
            group.create_task(self.looking.loop())
            group.create_task(self.shipping.loop())
            group.create_task(self.shipping.uploading.loop())
            group.create_task(self.mirroring.loop())
            group.create_task(self.prefetching.loop())
            group.create_task(self.attempts.store_mode.loop())
            group.create_task(self.fence.loop())
            if self._site.holds:
                group.create_task(self.attempts.ending.suspects.loop())
            if self.storing is not None:
                group.create_task(self.storing.owning.held_loop())
            if not self._site.holds:
                group.create_task(self.shipping.listen_loop())

    async def close(self) -> None:
        station = self._station
        if station is not None:
            station.closing.set()
            self.shipping.uploading.stop()
            self.prefetching.stop()
            self.attempts.behind.cancel()
            await station.http.close()
            station.lane.shutdown(wait=False, cancel_futures=True)
        if self._runner is not None:
            await self._runner.cleanup()

    # --- loops ---

    async def _beat_loop(self) -> None:
        at = self.station
        while True:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(at.link.beat)
            await asyncio.sleep(BEAT_SECONDS)


def _process_age() -> float:
    """Seconds since this process was started (proc(5): field 22 of stat, in clock ticks)."""
    try:
        begun = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return up - begun / os.sysconf("SC_CLK_TCK")
