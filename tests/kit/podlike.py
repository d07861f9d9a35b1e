"""A pod without Kubernetes: a real agent process, a real supervisor, a directive file."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rtj_api import contract
from rtj_api.wire import (
    SEQ,
    Batches,
    Directive,
    Phase,
    Probe,
    Report,
    Resume,
    SidecarConfig,
    SidecarPhase,
    Suspect,
    ThroughStore,
    Wanted,
)
from rtj_sidecar.config import HOLD_TERM_SECONDS

from kit import toy_trainer
from kit.supervised import Supervised, start_supervised, wait_for

REPOSITORY = Path(__file__).parents[2]
LOOK_SECONDS = 0.05  # a report is a millisecond of each side's processor, and some say no news
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(
        str(REPOSITORY / part) for part in ("crds", "trainer_sidecar", "cli")
    ),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def trainer_command(path: Path, *options: str, steps: int = 200, every: int = 10) -> list[str]:
    script = Path(toy_trainer.__file__)
    known = ["--dir", str(path), "--steps", str(steps), "--every", str(every)]
    return [sys.executable, "-u", str(script), *known, *options]


@dataclass
class PodLike:
    """One pod. `root` holds everything of it; `store` is shared by the gang."""

    root: Path
    config: SidecarConfig
    uid: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"
    plays: int | None = None  # the rank that a spare is given
    shell: str | None = None  # the trainer's image has this sh and no Python
    agent: subprocess.Popen[bytes] | None = None
    trainer: Supervised | None = None

    @property
    def path(self) -> Path:
        return Path(self.config.path)

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.config.status_port}"

    def start_agent(self) -> None:
        (self.root / "podinfo").mkdir(parents=True, exist_ok=True)
        with open(self.root / "agent.log", "ab") as log:
            self.agent = subprocess.Popen(
                [
                    *(sys.executable, "-m", "rtj_sidecar"),
                    *("--run-dir", str(self.root / "rtj")),
                    *("--podinfo", str(self.root / "podinfo")),
                    *("--bind", self.address),
                ],
                env={
                    **ENVIRONMENT,
                    "RTJ_CONFIG": self.config.dump_json(),
                    "RTJ_POD_UID": self.uid,
                    **self.environment,
                },
                stdout=log,
                stderr=log,
            )

    def start(self) -> PodLike:
        self.path.mkdir(parents=True, exist_ok=True)
        self.start_agent()
        wait_for(self.answers, seconds=60, why="the agent's HTTP")
        self.start_container()
        return self

    def start_container(self) -> None:
        self.trainer = start_supervised(
            self.root / "rtj",
            self.command,
            path=self.path,
            grace=self.config.trainer_grace_seconds,
            hold_term=HOLD_TERM_SECONDS if self.config.obeys_stop else 0.0,
            shell=self.shell,
        )

    def answers(self, *, since: int | None = None) -> Report | None:
        """Its report: at once, or as soon as it tells more than `since` did, but soon."""
        asked = "" if since is None else f"?since={since}&wait={LOOK_SECONDS}"
        try:
            return Report.model_validate_json(self.page(f"{contract.PATH_STATUS}{asked}"))
        except (urllib.error.URLError, OSError):
            return None

    def page(self, path: str) -> bytes:
        """As one sees it who may read the job. Raises URLError, OSError."""
        known = {contract.HEADER_JOB: self.config.job_uid}
        request = urllib.request.Request(self.url + path, headers=known)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def report(self) -> Report:
        return wait_for(self.answers, why="a report")

    def until(self, fact: Callable[[Report], object], *, seconds: float = 60) -> Report:
        last: list[Report] = []

        def seen() -> Report | None:
            report = self.answers(since=last[0].sequence if last else None)
            if report is None:
                return None
            last[:] = [report]
            return report if fact(report) else None

        try:
            return wait_for(seen, seconds=seconds)
        except AssertionError:
            text = json.dumps(last[0].dump(), indent=1) if last else "no report"
            raise AssertionError(f"{text}\n{self.log()[-6000:]}") from None

    def until_phase(self, phase: SidecarPhase, attempt: int, **options: float) -> Report:
        return self.until(
            lambda r: r.attempt == attempt and r.phase in (phase, SidecarPhase.FAILED), **options
        )

    def direct(
        self,
        phase: Phase,
        attempt: int,
        *,
        resume: Resume | None = None,
        fast: bool = False,
        world_size: int = 1,
        coordinator: str = "127.0.0.1",
        coordinator_port: int | None = None,
        grace: float | None = None,
        may_claim: bool = False,
        wanted: Wanted | None = None,
        through_store: ThroughStore | None = None,
        replaced: list[int] | None = None,
        probe: Probe | None = None,
        forget_probes: bool = False,
        suspects: Sequence[Suspect] = (),
        interval: float | None = None,
        batches: Batches | None = None,
        stop: tuple[int, float] | None = None,
    ) -> None:
        directive = Directive(
            wanted=wanted,
            suspects=list(suspects),
            job_uid=self.config.job_uid,
            pod_uid=self.uid,
            rank=self.config.rank if self.plays is None else self.plays,
            attempt=attempt,
            seq=SEQ[phase],
            phase=phase,
            world_size=world_size,
            coordinator=coordinator,
            coordinator_port=coordinator_port,
            resume=resume,
            fast=fast,
            grace_seconds=grace,
            may_claim=may_claim,
            through_store=through_store,
            replaced=replaced or [],
            probe=probe,
            forget_probes=forget_probes,
            interval_seconds=interval,
            batches=batches,
            stop_step=stop[0] if stop else None,
            stop_reason="PodEvicted" if stop else None,
            stop_within=stop[1] if stop else None,
        )
        place = self.root / "podinfo"
        (place / "directive.tmp").write_text(directive.dump_json())
        os.rename(place / "directive.tmp", place / "directive")

    def trainer_pid(self) -> int:
        """As seen from here."""
        assert self.trainer is not None
        children = Path(f"/proc/{self.trainer.pid}/task/{self.trainer.pid}/children")
        return int(wait_for(lambda: children.read_text().split(), why="a trainer")[0])

    def kill_trainer(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.trainer_pid(), number)

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait(60)

    def log(self) -> str:
        return (self.root / "agent.log").read_text(errors="replace")

    def output(self) -> str:
        assert self.trainer is not None
        return self.trainer.output_text()

    def end(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.kill()
            self.agent.wait(60)
        if self.trainer is not None and self.trainer.process.poll() is None:
            try:
                os.kill(self.trainer.pid, signal.SIGKILL)
            except (OSError, AssertionError):
                os.killpg(self.trainer.process.pid, signal.SIGKILL)
            self.trainer.process.wait(60)


def make_pod(
    directory: Path,
    *,
    store: Path | str | None,
    rank: int = 0,
    made_in: int = 1,
    command: Callable[[Path], list[str]] = trainer_command,
    port: int | None = None,
    job_uid: str = "job-1",
    volume: Path | None = None,
    address: str = "127.0.0.1",
    environment: dict[str, str] | None = None,
    **options: object,
) -> PodLike:
    root = directory / f"pod-{rank}-{made_in}"
    path = volume or root / "checkpoints"
    url = f"file://{store}" if isinstance(store, Path) else store
    config = SidecarConfig(
        cluster_uid="cluster",
        job_uid=job_uid,
        namespace="ns",
        job="gpt",
        rank=rank,
        made_in=made_in,
        framework="pytorch",
        procs_per_replica=1,
        run_id="ns/gpt",
        path=str(path),
        store_url=url,
        resume_args=["--resume", "$(RTJ_RESUME_CHECKPOINT)"],
        trainer_grace_seconds=5,
        drain_seconds=30,
        poll_seconds=0.2,
        status_port=port or free_port(),
        **options,  # type: ignore[arg-type]
    )
    return PodLike(
        root=root,
        config=config,
        uid=f"uid-{rank}-{made_in}",
        command=command(path),
        environment=environment or {},
        address=address,
    )
