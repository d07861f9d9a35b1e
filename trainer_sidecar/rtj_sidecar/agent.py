"""The agent of one pod: its parts put together, and the few loops that keep them going.

Whatever happens to it, the trainer goes on; a restarted agent continues from its journal. Must
never leave a wait without an end: see `_leave_loop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from aiohttp import ClientSession, web
from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.wire import (
    Directive,
    Phase,
    Release,
    SidecarConfig,
    SidecarPhase,
    SuperviseConfig,
    SupervisorState,
    TrainerState,
)

from rtj_sidecar.attempts import Attempts
from rtj_sidecar.checkpoints.layouts import layouts_for
from rtj_sidecar.checkpoints.types import Expectations, GateResult, PartFiles
from rtj_sidecar.config import Site
from rtj_sidecar.directives import DirectiveFile, accept, signed, warm_up
from rtj_sidecar.directory import Directory
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.holding import Holding
from rtj_sidecar.journal import Journal
from rtj_sidecar.looking import Looking
from rtj_sidecar.messages import PeerFile, PeerSave, Seen, Ships
from rtj_sidecar.mirroring import Mirroring
from rtj_sidecar.report import Reporter
from rtj_sidecar.runs.context import About
from rtj_sidecar.runs.run import Run
from rtj_sidecar.selffence import SelfFence
from rtj_sidecar.server import PinnedFile, make_app
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station, log
from rtj_sidecar.storemode import is_given_up
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.open import kept_in, open_store
from rtj_sidecar.storing import Storing
from rtj_sidecar.trainer.progress import read_line, read_progress_line
from rtj_sidecar.trainer.supervisor_link import SupervisorLink

TICK_SECONDS = 0.01
BEAT_SECONDS = 5.0
ABANDONED_SECONDS = 1800.0
GIVEN_UP_SECONDS = 4 * ABANDONED_SECONDS  # also with a save that no store takes: GPUs are freed
LOG_BACK_BYTES = 65536
WELL_SECONDS = 30.0


class Agent:
    """`start`, then `run` until cancelled; `close` at the end."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._station: Station | None = None
        self._runner: web.AppRunner | None = None
        self._wanted = asyncio.Event()
        self._handling: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._seen_end: tuple[str, int] | None = None
        self._ticked = time.monotonic()
        self._file = DirectiveFile(site.directive)

    # --- composition ---

    async def start(self) -> None:
        """Install the supervisor, take up what an earlier agent left, answer HTTP."""
        site = self._site
        link = SupervisorLink(site.root)
        config = SuperviseConfig(
            path=site.config.path,
            trainer_grace_seconds=site.config.trainer_grace_seconds,
            post_start=site.config.post_start,
        )
        await asyncio.to_thread(link.install, config)
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
            ),
            run=self._open_run(reporter),
            http=ClientSession(trust_env=False),
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
        self.attempts = Attempts(station, self.looking, self.shipping, holding, storing, self.fence)
        self.mirroring = Mirroring(station, self.looking, self.shipping)
        entry = journal.entry
        if entry.directive is not None:
            self._expect(station, entry.directive)
            reporter.set(
                attempt=entry.directive.attempt,
                seq=entry.directive.seq,
                fence=entry.fence if entry.fence_attempt == entry.attempt else None,
            )
            self._wanted.set()
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

    def _expect(self, station: Station, directive: Directive) -> None:
        """How much of a save this directory holds: all of it, or one rank's share."""
        alone = directive.world_size == 1 or self._site.config.shared_directory
        station.directory.expect = Expectations(
            world_size=directive.world_size * _procs(self._site.config), whole=alone
        )

    def _open_run(self, reporter: Reporter) -> Run | None:
        config, loop = self._site.config, asyncio.get_running_loop()

        def waits(problem: StoreProblem | None) -> None:
            # An upload survives minutes of outage by itself; that is no reason not to tell of it.
            tell = partial(reporter.heal, "transfer")
            if problem is not None:
                tell = partial(reporter.degrade, "transfer", problem.reason, problem.message)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(tell)

        if config.store_url is None and not config.keeps_in_directory:
            reporter.degrade(
                "store",
                Reason.INVALID_SPEC,
                "checkpoint.store.url is not set: no save outlives this pod. Set it to "
                "s3://bucket/prefix or file:///directory",
                retrying=False,
            )
            return None
        opened = partial(
            open_store,
            endpoint=config.store_endpoint,
            region=config.store_region,
            ca_file=config.store_ca_file,
            credentials_dir=(
                Path(config.store_credentials_dir) if config.store_credentials_dir else None
            ),
        )
        try:
            store = (
                opened(config.store_url, late=True, on_wait=waits)
                if config.store_url is not None
                else kept_in(Path(config.path))
            )
        except StoreProblem as problem:
            reporter.degrade("store", problem.reason, problem.message, retrying=False)
            return None
        return Run(
            store=store,
            run_id=config.run_id,
            cluster_uid=config.cluster_uid,
            job_uid=config.job_uid,
            rank=config.rank,
            union_gate=partial(union_gate, procs=_procs(config)),
            about=About(
                namespace=config.namespace,
                job=config.job,
                image=config.image,
                command=tuple(config.command),
            ),
            open_place=opened,
        )

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
        app = make_app(reporter=station.reporter, peers=self, metrics=self._metrics)

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
            group.create_task(self._watch_loop())
            group.create_task(self._directive_loop())
            group.create_task(self._beat_loop())
            group.create_task(self._progress_loop())
            group.create_task(self._leave_loop())
            group.create_task(self.looking.loop())
            group.create_task(self.shipping.loop())
            group.create_task(self.mirroring.loop())
            group.create_task(self.attempts.store_mode.loop())
            group.create_task(self.fence.loop())
            if self.storing is not None:
                group.create_task(self.storing.owning.held_loop())
            if not self._site.holds:
                group.create_task(self.shipping.listen_loop())

    async def close(self) -> None:
        station = self._station
        if station is not None:
            station.closing.set()
            self.shipping.cancel.set()
            self.attempts.cancel_background()
            await station.http.close()
            station.lane.shutdown(wait=False, cancel_futures=True)
        if self._runner is not None:
            await self._runner.cleanup()

    # --- loops ---

    async def _watch_loop(self) -> None:
        """The supervisor's word and new directives, a hundred times a second."""
        at = self.station
        file = self._file
        seen: tuple[int, int] | None = None
        while True:
            self._ticked = time.monotonic()
            changed = at.link.state_changed(seen)
            if changed is not None:
                state = at.link.state()
                if state is not None:
                    seen = changed
                    await self._hear_supervisor(state)
            directive = file.read()
            if directive is not None:
                self._hear_directive(directive)
            if file.problem is not None:
                at.reporter.degrade("directive", Reason.INVALID_SPEC, file.problem)
            elif directive is not None:
                at.reporter.heal("directive")
            await asyncio.sleep(TICK_SECONDS)

    async def _hear_supervisor(self, state: SupervisorState) -> None:
        at = self.station
        first = at.supervisor is None
        at.supervisor = state
        trainer = state.trainer
        ended = trainer.state is TrainerState.EXITED
        news = ended and self._seen_end != (state.boot_id, trainer.attempt)
        mine = news and trainer.attempt == at.attempt and self.station.is_after_go
        fields: dict[str, object] = {
            "supervisor_seen": True,
            "trainer": trainer,
            "terminating": state.term_received_at is not None,
            "lingering": state.lingering,
        }
        if mine:
            fields |= {"phase": SidecarPhase.EXITED, "settling": True, "problem": None}
        if at.reporter.current.phase is SidecarPhase.FAILED:
            fields.pop("phase", None)
            fields.pop("problem", None)
        at.reporter.set(**fields)
        if news:
            self._seen_end = (state.boot_id, trainer.attempt)
        if mine:
            log.info("trainer of attempt %d ended, code %s", trainer.attempt, trainer.exit_code)
            self._ending = asyncio.create_task(self._after_end())
        if first and not state.python:
            at.reporter.degrade(
                "supervisor",
                Reason.SUPERVISOR_MISSING,
                "the trainer's image has no python3 (3.8 or newer), so a shell supervises it: its "
                "output is not read (no log tail, steps only from saves and the progress file), "
                "and a save counts as finished only when it has not changed for a while. Add "
                "python3 to the image",
                retrying=False,
            )
        if first:
            # Only now have the user's own init containers ended: the directory is ours to touch.
            await self._load(at)
            self.looking.tell()

    async def _after_end(self) -> None:
        try:
            await self.attempts.trainer_ended()
            if self.station.reporter.current.phase is not SidecarPhase.FAILED:
                await self.attempts.drain()
        finally:
            self.station.reporter.set(settling=False)

    def _hear_directive(self, directive: Directive) -> None:
        at = self.station
        refused = accept(
            directive,
            job_uid=self._site.config.job_uid,
            pod_uid=self._site.pod_uid,
            highest=at.directive,
        )
        if refused is not None:
            level = logging.DEBUG if refused.is_old else logging.INFO
            log.log(level, "directive not accepted: %s", refused.why)
            return
        if directive.sent_at is not None:
            log.info("directive heard %.3f s after it was sent", time.time() - directive.sent_at)
        try:
            at.journal.write(directive=directive, done=False)
        except OSError as error:
            at.reporter.degrade("journal", Reason.DISK_FULL, f"the journal is not written: {error}")
            # Not accepted: the file is read again as if it were new.
            at.loop.call_later(1.0, self._hear_directive, directive)
            return
        at.contact = time.monotonic()
        at.reporter.heal("journal")
        self._expect(at, directive)
        if directive.attempt > at.reporter.current.attempt:
            at.end_progress()
        now = at.reporter.current
        if is_given_up(now, directive):
            return  # The end of this attempt is passed on, with its reason.
        at.reporter.set(
            attempt=directive.attempt,
            seq=directive.seq,
            problem=None,
            settling=False,
            phase=_first_phase(directive, now.phase),
        )
        for task in (self._handling, self._ending):
            if task is not None:
                task.cancel()
        self._wanted.set()

    async def _directive_loop(self) -> None:
        """Carry out the highest directive; a higher one ends what is done for a lower."""
        at = self.station
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            directive = at.directive
            if directive is None or (at.supervisor is None and directive.phase is Phase.GO):
                # After a restart of the agent: first hear how the trainer is.
                await asyncio.sleep(TICK_SECONDS)
                self._wanted.set()
                continue
            self._handling = asyncio.create_task(self.attempts.carry_out(directive))
            await asyncio.wait({self._handling})
            if self._handling.cancelled():
                continue
            self._handling.result()
            if at.directive == directive:
                at.journal.note(done=True)
                self._notice_end()

    def _notice_end(self) -> None:
        """The trainer may have ended before this agent knew that it was told to go."""
        at = self.station
        state = at.supervisor
        if state is None or not self.station.is_after_go:
            return
        trainer = state.trainer
        over = trainer.state is TrainerState.EXITED and trainer.attempt == at.attempt
        if over and at.reporter.current.phase is SidecarPhase.TRAINING:
            at.reporter.set(phase=SidecarPhase.EXITED, settling=True, trainer=trainer)
            self._ending = asyncio.create_task(self._after_end())

    async def _beat_loop(self) -> None:
        at = self.station
        while True:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(at.link.beat)
            await asyncio.sleep(BEAT_SECONDS)

    async def _progress_loop(self) -> None:
        at = self.station
        while True:
            known = at.progress.first_step_at is not None
            await asyncio.sleep(0.5 if known else 0.05)
            follower, extra = at.log_lines, at.progress_lines
            if follower is None or extra is None:
                continue
            lines = await asyncio.to_thread(follower.lines)
            told = await asyncio.to_thread(extra.lines)
            if follower is not at.log_lines:
                continue
            now, progress, unread = time.time(), at.progress, False
            for line in lines:
                progress = progress.with_log(read_line(line), now=now)
            for line in told:
                sign = read_progress_line(line)
                if sign is None:
                    unread = True
                    at.reporter.degrade(
                        "progress",
                        Reason.PROGRESS_FILE_UNREADABLE,
                        f"{contract.ENV_PROGRESS_FILE}: not a JSON object with step or loss: "
                        f"{line[:80]!r}",
                    )
                else:
                    progress = progress.with_file(sign, now=now)
            if told and not unread:
                at.reporter.heal("progress")
            at.progress = progress
            at.reporter.set(progress=progress.view())

    async def _leave_loop(self) -> None:
        """Let the trainer's container end: when the pod is ended and drained, or abandoned."""
        at = self.station
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
                    await self.attempts.say_ending()
                    log.info("released: %s", "drain time is over" if overdue else "drained")
                    at.link.release(Release(message=contract.MESSAGE_RELEASED))
                    await asyncio.sleep(5)
            elif (
                # A trainer may have run for hours without an operator that hears of it.
                (silent := time.monotonic() - max(at.contact, idle_since)) > ABANDONED_SECONDS
                and (silent > GIVEN_UP_SECONDS or self.shipping.is_drained())
            ):
                log.warning("no operator for %d s: abandoned", silent)
                at.link.release(Release(message=contract.MESSAGE_ABANDONED))
                await asyncio.sleep(60)

    async def _is_drained_for_good(self) -> bool:
        at = self.station
        if not at.settled:
            await self.looking.look(gone=True)
            at.settled = True
            at.ship_now.set()
        return self.shipping.is_drained()

    # --- what peers ask (server.Peers) ---

    def is_well(self) -> bool:
        return time.monotonic() - self._ticked < WELL_SECONDS

    def told(self, body: bytes, *, signature: str) -> None:
        by = self._file.newest
        mine = by is not None and by.pod_uid == self._site.pod_uid
        self._hear_directive(signed(body, signature=signature, by=by if mine else None))

    async def ships(self, *, since: int | None, wait: float) -> Ships:
        if self.holding is None:
            return Ships(version=0)
        return await self.holding.ships(since=since, wait=wait)

    async def heard(self, seen: Seen) -> None:
        if self.holding is None:
            raise ValueError("rank 0 names the saves: ask it")
        self.holding.hear(seen)

    def pinned_files(self, name: str) -> Mapping[str, PinnedFile] | None:
        at = self.station
        found: dict[str, PinnedFile] = {}
        for save in at.directory.named(name):
            for path, source in at.directory.sources(save).items():
                size = next(f.stamp.size for f in save.pin.files if f.path == path)
                found.setdefault(path, PinnedFile(source, size))
        return found or None

    async def describe(self, name: str) -> PeerSave | None:
        at = self.station
        saves = at.directory.named(name)
        if not saves:
            return None
        hashes = await at.on_disk(at.directory.hashes, name)
        if any(file.path not in hashes for save in saves for file in save.pin.files):
            return None  # A pin that was changed: what is left of it is not what was saved.
        files = [PeerFile(path=p, size=s, sha256=h, mode=m) for p, (s, h, m) in hashes.items()]
        return PeerSave(name=name, facts=saves[0].record.facts, files=files)


def _process_age() -> float:
    """Seconds since this process was started (proc(5): field 22 of stat, in clock ticks)."""
    try:
        begun = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return up - begun / os.sysconf("SC_CLK_TCK")


# Told together with the attempt, so that no older phase is ever read as this attempt's.
_FIRST = {
    Phase.PREPARE: SidecarPhase.STOPPING,
    Phase.RESTORE: SidecarPhase.RESTORING,
    Phase.GO: SidecarPhase.RESTORED,
    Phase.STOP: SidecarPhase.STOPPING,
    Phase.RELEASE: SidecarPhase.DRAINING,
}


def _first_phase(directive: Directive, now: SidecarPhase) -> SidecarPhase:
    if directive.phase is Phase.GO and (directive.fast or now is not SidecarPhase.RESTORED):
        return SidecarPhase.STOPPING
    return _FIRST[directive.phase]


def union_gate(
    layout: str, parts: Sequence[PartFiles], world_size: int, *, procs: int = 1
) -> GateResult:
    """Whether the ranks' parts together are a whole save, by the layout's own rules."""
    chosen = layouts_for(layout=layout)[0]
    return chosen.union_gate(parts=parts, expect=Expectations(world_size=world_size * procs))


def _procs(config: SidecarConfig) -> int:
    """Trainer processes a pod has at least: where only GPUs were counted, one may use them all."""
    return config.procs_per_replica if config.procs_stated else 1
