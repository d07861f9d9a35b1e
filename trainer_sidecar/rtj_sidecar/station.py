"""What all parts of one agent share: who it is, what it holds, and how blocking work is done.

Belongs to the event loop's thread. The directory is used by one worker thread only, the store by
several. Must never swallow an error: what is not expected ends the agent, which comes back and
goes on from its journal.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from aiohttp import ClientSession
from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.wire import (
    Candidate,
    Directive,
    Phase,
    Problem,
    ProgressView,
    SidecarPhase,
    SupervisorState,
    TrainerState,
)

from rtj_sidecar.config import Site
from rtj_sidecar.directory import Directory
from rtj_sidecar.flights import FlightReader
from rtj_sidecar.journal import Journal
from rtj_sidecar.messages import Unfinished
from rtj_sidecar.report import Reporter
from rtj_sidecar.runs.run import Run
from rtj_sidecar.traffic import Sent, Traffic
from rtj_sidecar.trainer.bars import Shown
from rtj_sidecar.trainer.life import Life
from rtj_sidecar.trainer.losses import Losses
from rtj_sidecar.trainer.pace import Pace
from rtj_sidecar.trainer.progress import Follower, Progress
from rtj_sidecar.trainer.supervisor_link import SupervisorLink
from rtj_sidecar.trainer.trail import Steps
from rtj_sidecar.transfers import Transfers

P = ParamSpec("P")
T = TypeVar("T")

CANDIDATES_TOLD = 100
TELL_SECONDS = 1.0
KILL_KEY = "kill"

log = logging.getLogger("rtj.sidecar")


@dataclass
class Station:
    """The state that outlives a directive."""

    site: Site
    link: SupervisorLink
    journal: Journal
    reporter: Reporter
    directory: Directory
    run: Run | None
    http: ClientSession
    loop: asyncio.AbstractEventLoop
    lane: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="directory")
    )
    supervisor: SupervisorState | None = None
    progress: Progress = field(default_factory=Progress)
    losses: Losses = field(default_factory=Losses)
    shown: Shown = field(default_factory=Shown)  # by a progress bar
    pace: Pace = field(default_factory=Pace)
    steps: Steps = field(default_factory=Steps)
    life: Life = field(default_factory=Life)
    candidates: list[Candidate] = field(default_factory=list)
    halves: dict[str, str] = field(default_factory=dict)  # by save: whose share it lacks
    traffic: Traffic = field(default_factory=Traffic)
    sent: Sent | None = None
    transfers: Transfers = field(default_factory=Transfers)
    fetching: int = 0  # bytes that this attempt's prepare and restore have fetched so far
    counting: threading.Lock = field(default_factory=threading.Lock)
    may_publish: bool = False  # the fence of this attempt is held for certain
    overtaken: bool = False  # the shared directory is another attempt's: nothing is done there
    log_lines: Follower | None = None
    progress_lines: Follower | None = None
    settled: bool = False  # the trainer of this attempt ended and the directory was looked at since
    question: int = 0  # of rank 0, as heard last: what is there now?
    answered: int = 0  # the question that was known before the last look began
    looks: int = 0  # at the directory, that this sidecar has completed
    unfinished: tuple[Unfinished, ...] = ()  # what that look found still to change
    look_now: asyncio.Event = field(default_factory=asyncio.Event)
    ship_now: asyncio.Event = field(default_factory=asyncio.Event)
    closing: threading.Event = field(default_factory=threading.Event)
    flights: FlightReader = field(default_factory=FlightReader)
    asked_for_stacks: str | None = None  # the stall for which the supervisor was asked
    contact: float = field(default_factory=time.monotonic)  # the operator was heard last

    @property
    def directive(self) -> Directive | None:
        return self.journal.entry.directive

    @property
    def attempt(self) -> int:
        return self.journal.entry.attempt

    @property
    def fence(self) -> int | None:
        return self.journal.entry.fence

    @property
    def is_writing(self) -> bool:
        """Whether the last look found something unfinished."""
        return bool(self.unfinished)

    @property
    def is_training(self) -> bool:
        return self.supervisor is not None and self.supervisor.trainer.state is TrainerState.RUNNING

    @property
    def is_after_go(self) -> bool:
        """Whether the trainer of this attempt was told to go, and nothing else was asked since."""
        return self.directive is not None and self.directive.phase is Phase.GO

    @property
    def touches_directory(self) -> bool:
        return self.site.touches_directory and not self.overtaken

    @property
    def holder_url(self) -> str | None:
        """Where rank 0's sidecar answers; None while unknown, or when that is this one."""
        directive = self.directive
        if self.site.holds or directive is None or not directive.coordinator:
            return None
        # On the hosts' network each rank has a port of its own.
        port = directive.coordinator_port or self.site.port
        return contract.sidecar_url(directive.coordinator, port=port)

    @property
    def own_url(self) -> str | None:
        """Where this sidecar answers its peers."""
        address = self.site.address
        return contract.sidecar_url(address, port=self.site.port) if address else None

    async def on_disk(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on the checkpoint directory, after those before it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.lane, partial(call, *args, **kwargs))

    def set_phase(self, phase: SidecarPhase, *, problem: Problem | None = None) -> None:
        if self.reporter.current.phase is not phase or problem is not None:
            log.info("phase %s attempt %d", phase.value, self.attempt)
        self.reporter.set(phase=phase, problem=problem)

    def fail(
        self,
        reason: Reason | str,
        message: str,
        *,
        retrying: bool = False,
        ranks: Sequence[int] = (),
    ) -> None:
        """This attempt cannot go on here."""
        log.error("failed: %s: %s", reason, message)
        problem = Problem(
            reason=str(reason),
            message=message,
            since=time.time(),
            retrying=retrying,
            ranks=list(ranks),
        )
        self.set_phase(SidecarPhase.FAILED, problem=problem)

    def kill_trainer(self, *, up_to: int) -> None:
        """End the trainer of any attempt up to that one without grace. Where the wish cannot be
        written (a full disk), it is tried again until it can: whoever calls has lost its right to
        write, and must not end itself over it."""
        try:
            self.link.kill(up_to=up_to)
        except OSError as error:
            text = f"{self.link.run} cannot be written, so the trainer is not stopped yet: {error}"
            self.reporter.degrade(KILL_KEY, Reason.DISK_FULL, text)
            self.loop.call_later(1.0, partial(self.kill_trainer, up_to=up_to))
            return
        self.reporter.heal(KILL_KEY)

    def begin_progress(self, *, back: int = 0) -> None:
        """Forget an older attempt's progress; read the log from here, or `back` bytes before."""
        self.progress = Progress()
        self.losses, self.steps, self.pace = Losses(from_start=not back), Steps(), Pace()
        self.shown = Shown()
        self.log_lines = Follower(self.link.run / contract.FILE_LOG, from_end=True, back=back)
        self.progress_lines = Follower(self.link.run / contract.FILE_PROGRESS)
        self.life = self.life.begun(now=time.time())
        self.reporter.set(progress=self.progress.view(), stall=None)

    def progress_view(self) -> ProgressView:
        """What is known of the trainer's steps, with their pace."""
        pace = self.pace.usual_step()
        rounded = None if pace is None else float(f"{pace:.4g}")
        return self.progress.view().model_copy(update={"pace_seconds": rounded})

    def end_progress(self) -> None:
        """What the older attempt's trainer still prints says nothing about this one."""
        self.progress, self.log_lines, self.progress_lines = Progress(), None, None
        self.losses, self.steps, self.pace = Losses(), Steps(), Pace()
        self.reporter.set(progress=self.progress.view(), stall=None)

    def tell_candidates(self) -> None:
        self.reporter.set(candidates=self.tried(self.candidates)[:CANDIDATES_TOLD])

    def tried(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with what was found of them, once restored, in this attempt or those just
        before: a probe that failed, a required key that is not there."""
        entry = self.journal.entry
        failed = entry.probe_failed
        is_same = entry.lacking_of == self.site.config.required_keys
        lacking = entry.lacking if is_same else {}
        more = {
            **{name: {"failed_probe": said} for name, said in failed.items()},
            **{
                name: {"invalid": str(Reason.REQUIRED_KEY_MISSING), "invalid_message": why}
                for name, why in lacking.items()
            },
            **{
                name: {"invalid": str(Reason.CHECKPOINT_TORN), "invalid_message": why}
                for name, why in self.halves.items()
            },
        }
        return [c.model_copy(update=more[c.name]) if c.name in more else c for c in candidates]

    def tell_pins(self) -> None:
        """Names that this pod could restore without fetching a byte, and those of which it has
        all that it wrote or fetched itself; newest last."""
        names = dict.fromkeys(s.record.name for s in self.directory.saves if s.record.name)
        whole = [name for name in names if self.directory.has_whole(name)]
        self.reporter.set(pinned=whole, shares=list(names))

    def fetched(self, count: int) -> None:
        """Count bytes on their way to a restore, from any thread; negative where sent again."""
        with self.counting:
            self.fetching += count

    async def tell_fetching(self) -> None:
        """Show once a second that a long fetch moves, for whoever waits for it."""
        while True:
            await asyncio.sleep(1.0)
            view = self.reporter.current.checkpoint
            self.reporter.set(checkpoint=view.model_copy(update={"restored_bytes": self.fetching}))

    async def tell_transfers(self) -> None:
        """How far each is, once a second; that there is none any more, once."""
        while True:
            await asyncio.sleep(TELL_SECONDS)
            self.reporter.set(transfers=self.transfers.views())

    def moved(self, **more: int) -> None:
        """Count bytes, from any thread: `uploaded`, `from_store`, `from_peers`."""
        with self.counting:
            old = self.traffic
            self.traffic = Traffic(
                uploaded=old.uploaded + more.get("uploaded", 0),
                from_store=old.from_store + more.get("from_store", 0),
                from_peers=old.from_peers + more.get("from_peers", 0),
            )
