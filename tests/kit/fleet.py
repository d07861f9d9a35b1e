"""A gang of many ranks in one process: real sidecars, a real store, a disk and a line for each.

Every rank runs the sidecar's own agent (looking, shipping, holding, storing, mirroring, restoring)
at a loopback address of its own; only its trainer's container is played (`kit.fleet_pod`). Must
never judge a run by a model: what happened is read from the store's records.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rtj_api.rules.resume import Chosen, Facts, NoChoice, choose
from rtj_api.wire import Phase, Resume, SidecarConfig, SidecarPhase
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.records import MarkKind
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.open import open_store

from kit import toy_trainer
from kit.fleet_pod import FleetPod
from kit.podlike import free_port

RUN = "ns/gpt"
DEADLINE = 120.0


def shard(step: int, rank: int, *, size: int = 2000) -> dict[str, object]:
    """What rank `rank` saves at that step: other bytes for each rank and step."""
    weight = (f"{step}/{rank};".encode() * size)[:size]
    optimizer = {"state": {0: {"exp_avg": [0.0]}}, "param_groups": [{"lr": 0.1}]}
    return {"step": step, "model": {"weight": weight}, "optimizer": optimizer}


class Fleet:
    """`async with Fleet(...) as fleet`. `rates`: by rank, bytes a second of its line."""

    def __init__(
        self,
        directory: Path,
        *,
        world_size: int,
        store: str,
        rates: Mapping[int, float] | None = None,
        shared: bool = False,
        **options: object,
    ) -> None:
        self.directory, self.world_size, self.url = directory, world_size, store
        self.rates = dict(rates or {})
        self.shared = shared
        self.options = options
        endpoint = options.get("store_endpoint")
        self.endpoint = str(endpoint) if endpoint else None
        self.port = free_port()
        self.pods: list[FleetPod] = []
        self.attempt = 0

    async def __aenter__(self) -> Fleet:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(32 + 4 * self.world_size))
        self.pods = [await self.make(rank, made_in=1) for rank in range(self.world_size)]
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(pod.stop() for pod in self.pods))

    async def make(
        self,
        rank: int,
        *,
        made_in: int,
        path: Path | None = None,
        job_uid: str = "job-1",
        address: int | None = None,
    ) -> FleetPod:
        """`address`: the last number of its loopback address, where the rank's own is taken."""
        root = self.directory / f"pod-{rank}-{made_in}"
        home = self.directory / "shared" if self.shared else root / "checkpoints"
        config = SidecarConfig(
            clusterUID="cluster",
            jobUID=job_uid,
            namespace="ns",
            job="gpt",
            rank=rank,
            made_in=made_in,
            framework="pytorch",
            procs_per_replica=1,
            runID=RUN,
            path=str(path or home),
            store_url=self.url,
            poll_seconds=0.1,
            status_port=self.port,
            shared_directory=self.shared,
            **self.options,  # type: ignore[arg-type]
        )
        uid = f"uid-{job_uid}-{rank}-{made_in}"
        pod = FleetPod(root, config, address=f"127.0.1.{address or rank + 1}", uid=uid)
        pod.rate = self.rates.get(rank)
        await pod.start()
        return pod

    async def replace(self, rank: int, *, made_in: int, keeps_disk: bool = False) -> FleetPod:
        """The rank's pod is gone; a new one takes its place, with an empty disk or the old one."""
        old = self.pods[rank]
        await old.stop()
        self.pods[rank] = await self.make(
            rank, made_in=made_in, path=old.path if keeps_disk else None
        )
        return self.pods[rank]

    # --- the operator's part ---

    def direct(self, phase: Phase, **options: object) -> None:
        for rank, pod in enumerate(self.pods):
            if pod.died is None:
                pod.direct(
                    phase,
                    self.attempt,
                    world_size=len(self.pods),
                    coordinator=self.pods[0].address,
                    **options,
                )
            else:
                raise AssertionError(f"rank {rank} is dead: {pod.died!r}")

    async def until(
        self, fact: Callable[[], object], *, why: str, seconds: float = DEADLINE
    ) -> None:
        deadline = time.monotonic() + seconds
        while not fact():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:.0f} s: {why}\n{self.told()}")
            await asyncio.sleep(0.02)

    def told(self) -> str:
        lines = []
        for rank, pod in enumerate(self.pods):
            r = pod.report
            trouble = [f"{p.reason}: {p.message}" for p in (r.problem, *r.degraded) if p]
            lines.append(f"rank {rank} {r.phase.value} attempt {r.attempt} {trouble} {pod.died!r}")
        return "\n".join(lines)

    async def reach(self, phase: SidecarPhase) -> None:
        await self.until(
            lambda: all(pod.has_reached(phase, self.attempt) for pod in self.pods),
            why=f"{phase.value} of attempt {self.attempt}",
        )
        assert all(pod.report.phase is phase for pod in self.pods), self.told()

    async def prepare(self, **options: object) -> None:
        self.attempt += 1
        self.direct(Phase.PREPARE, **options)
        await self.reach(SidecarPhase.PREPARED)

    def choice(self, *, allow_scratch: bool = False) -> Chosen | NoChoice:
        reports = [pod.report for pod in self.pods]
        return choose(
            Facts(
                run=RUN,
                world_size=len(self.pods),
                candidates=reports[0].candidates,
                listed=bool(reports[0].listed),
                pinned={r.rank: r.pinned for r in reports},
                shares={r.rank: r.shares for r in reports},
                urls={rank: pod.url for rank, pod in enumerate(self.pods)},
                allow_scratch=allow_scratch,
            )
        )

    async def begin(self, **options: object) -> Resume:
        """Prepare, choose, restore, go: as the operator does after each fault."""
        await self.prepare(**options)
        chosen = self.choice()
        assert isinstance(chosen, Chosen), chosen
        self.direct(Phase.RESTORE, resume=chosen.resume)
        await self.reach(SidecarPhase.RESTORED)
        self.direct(Phase.GO, resume=chosen.resume)
        await self.until(
            lambda: all(self.attempt in pod.trained for pod in self.pods), why="all trainers run"
        )
        return chosen.resume

    # --- the trainers' part ---

    def save(self, step: int, *, ranks: Collection[int] | None = None, size: int = 2000) -> None:
        """Every rank saves its own shard of that step, written under another name and renamed."""
        for rank, pod in enumerate(self.pods):
            if ranks is None or rank in ranks:
                place = pod.path / f"step_{step}"
                place.mkdir(parents=True, exist_ok=True)
                toy_trainer.save(place / f"rank{rank}.pt", shard(step, rank, size=size))

    # --- what came of it ---

    def history(self) -> History:
        reader = Run(
            store=open_store(self.url, endpoint=self.endpoint),
            run_id=RUN,
            cluster_uid="cluster",
            job_uid="reader",
            rank=0,
            union_gate=lambda *_: (_ for _ in ()).throw(AssertionError("a reader commits nothing")),
        )
        return reader.history()

    def durable_steps(self) -> list[int]:
        """Of every commit record in the store, in the order of names."""
        return [m.step or 0 for _, m in sorted(self.history().manifests.items())]

    def dropped(self) -> dict[str, str]:
        """Name -> why, of every save that was dropped by name."""
        return {
            str(save): mark.message
            for save, marks in self.history().marks.items()
            for mark in marks
            if mark.kind is MarkKind.DROPPED
        }

    async def until_durable(self, step: int, *, seconds: float = DEADLINE) -> None:
        await self.until(
            lambda: (self.pods[0].report.checkpoint.last_durable_step or 0) >= step,
            why=f"step {step} durable",
            seconds=seconds,
        )
