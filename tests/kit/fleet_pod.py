"""One rank of a `kit.fleet.Fleet`: a real agent, a played supervisor and trainer, a paced store.

The agent is the sidecar's own, whole; what is played is only who answers it in the trainer's
container. Must never touch another rank's directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from rtj_api import contract
from rtj_api.wire import (
    SEQ,
    Directive,
    Phase,
    Report,
    SidecarConfig,
    SidecarPhase,
    SupervisorState,
    TrainerState,
    TrainerView,
)
from rtj_sidecar import opening
from rtj_sidecar.agent import Agent
from rtj_sidecar.config import Site
from rtj_sidecar.stores.base import Condition, Conflict, Progress, Store, Uploaded, Written
from rtj_sidecar.stores.base import check_cancel as check
from rtj_sidecar.stores.open import open_store
from rtj_sidecar.trainer.install import write_whole

STEP_SECONDS = 0.05


class PodDied(Exception):
    """What a gate raises where this pod is to die: its agent ends with it."""


class PacedStore:
    """A rank's own line to the store: `rate` bytes a second, and a gate before each write.

    `gate(verb, key)` may block or raise PodDied; verb: put, upload, uploaded, download.
    """

    def __init__(self, inner: Store, *, rate: float | None) -> None:
        self._inner = inner
        self.rate = rate
        self.gate: Callable[[str, str], None] = lambda verb, key: None
        self.busy_seconds = 0.0
        self._line = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: str, data: bytes, *, condition: Condition = None) -> Written | Conflict:
        self.gate("put", key)
        return self._inner.put(key, data, condition=condition)

    def upload_file(
        self,
        key: str,
        path: Path,
        *,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
        **more: Any,
    ) -> Uploaded:
        self.gate("upload", key)
        begun = time.monotonic()
        with self._line if self.rate else contextlib.nullcontext():
            # By the clock: on a busy machine each sleep takes longer than it was asked to.
            until = time.monotonic() + (path.stat().st_size / self.rate if self.rate else 0.0)
            while (left := until - time.monotonic()) > 0:
                check(cancel)
                time.sleep(min(left, STEP_SECONDS))
        done = self._inner.upload_file(key, path, progress=progress, cancel=cancel, **more)
        self.busy_seconds += time.monotonic() - begun
        self.gate("uploaded", key)
        return done

    def download(self, key: str, path: Path, **options: Any) -> None:
        self.gate("download", key)
        self._inner.download(key, path, **options)

    def list(self, prefix: str) -> Iterator[Any]:
        return self._inner.list(prefix)


class FleetPod:
    """`start` and `stop` in the fleet's event loop."""

    def __init__(self, root: Path, config: SidecarConfig, *, address: str, uid: str) -> None:
        self.root, self.config, self.address, self.uid = root, config, address, uid
        self.path = Path(config.path)
        self.rate: float | None = None
        self.died: BaseException | None = None
        self.exit_code: int | None = None  # set: the played trainer ends
        self._state = SupervisorState(
            bootID=uid, sequence=0, pid=1, uid=0, gid=0, python="3.11", written_at=time.time()
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: tuple[int, int] = (0, 0)
        self.trained: list[int] = []  # attempts of which a trainer was started

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.config.status_port}"

    @property
    def report(self) -> Report:
        return self.agent.station.reporter.current

    async def start(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.root / "podinfo").mkdir(parents=True, exist_ok=True)
        self.agent = Agent(
            Site(
                config=self.config,
                pod_uid=self.uid,
                pod_name=self.uid,
                root=self.root / "rtj",
                directive=self.root / "podinfo" / "directive",
                bind=self.address,
                address=self.address,
                port=self.config.status_port,
            )
        )
        # Its own line to the store, put in where the agent opens it.
        with mock.patch.object(opening, "open_store", self._line):
            await self.agent.start()
        # As after a save that vanished: files that prove themselves need rest only a moment.
        self.agent.station.directory.sight.in_hurry = True
        self._publish()
        self._tasks = [
            asyncio.create_task(self._run_agent()),
            asyncio.create_task(self._play()),
        ]

    def _line(self, *where: Any, **options: Any) -> Store:
        self.store = PacedStore(open_store(*where, **options), rate=self.rate)
        return self.store  # type: ignore[return-value]

    async def _run_agent(self) -> None:
        try:
            await self.agent.run()
        except Exception as error:
            try:
                await self.agent.close()
            finally:
                # Only now: whoever waits for its death may put another pod at its address.
                self.died = error

    async def stop(self) -> None:
        """As a killed pod: nothing is said any more. Its directory stays as it is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        # Also where it was just closing by itself, which the cancel has broken off.
        await self.agent.close()

    # --- the played supervisor ---

    def _publish(self, **changes: object) -> None:
        self._state = self._state.model_copy(
            update={**changes, "sequence": self._state.sequence + 1, "written_at": time.time()}
        )
        run = self.root / "rtj" / "run"
        run.mkdir(parents=True, exist_ok=True)
        write_whole(run / contract.FILE_SUPERVISOR, self._state.dump_json())

    def _told(self, name: str) -> dict[str, Any] | None:
        try:
            return json.loads((self.root / "rtj" / "run" / name).read_text())
        except (OSError, ValueError):
            return None

    async def _play(self) -> None:
        while True:
            self._play_once()
            await asyncio.sleep(0.02)

    def _play_once(self) -> None:
        trainer = self._state.trainer
        go, stop = self._told(contract.FILE_GO), self._told(contract.FILE_STOP)
        running = trainer.state is TrainerState.RUNNING
        stopped = max(self._state.stopped_attempt, stop["attempt"] if stop else 0)
        if running and (self.exit_code is not None or stopped >= trainer.attempt):
            self._publish(
                stopped_attempt=stopped,
                trainer=trainer.model_copy(
                    update={
                        "state": TrainerState.EXITED,
                        "ended_at": time.time(),
                        "exit_code": -9 if self.exit_code is None else self.exit_code,
                        "asked_to_stop": self.exit_code is None,
                    }
                ),
            )
            self.exit_code = None
        elif stopped != self._state.stopped_attempt:
            self._publish(stopped_attempt=stopped)
        elif go and not running and go["attempt"] > max(trainer.attempt, stopped):
            self.trained.append(go["attempt"])
            self._publish(
                trainer=TrainerView(
                    state=TrainerState.RUNNING,
                    attempt=go["attempt"],
                    pid=2,
                    started_at=time.time(),
                )
            )

    def sigterm(self) -> None:
        """The kubelet ends the pod: the supervisor hears of it first."""
        self._publish(term_received_at=time.time())

    @property
    def is_released(self) -> bool:
        """Whether the sidecar let the trainer's container end."""
        return self._told(contract.FILE_RELEASE) is not None

    # --- the played operator ---

    def direct(self, phase: Phase, attempt: int, **options: object) -> None:
        directive = Directive(
            jobUID=self.config.job_uid,
            podUID=self.uid,
            rank=self.config.rank,
            attempt=attempt,
            seq=SEQ[phase],
            phase=phase,
            **options,  # type: ignore[arg-type]
        )
        write_whole(self.root / "podinfo" / "directive", directive.dump_json())

    def has_reached(self, phase: SidecarPhase, attempt: int) -> bool:
        report = self.report
        return report.attempt == attempt and report.phase in (phase, SidecarPhase.FAILED)


class Held:
    """Calls to the store that wait until they are let go."""

    def __init__(self, pod: FleetPod, verb: str, key: str = "") -> None:
        self.asked, self.free = threading.Event(), threading.Event()
        self._verb, self._key = verb, key
        pod.store.gate = self

    def __call__(self, verb: str, key: str) -> None:
        if verb == self._verb and self._key in key:
            self.asked.set()
            self.free.wait(60)
