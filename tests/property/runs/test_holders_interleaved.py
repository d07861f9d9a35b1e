"""Attempts of one job that overlap in every way, and die between any two calls to the store.

Each holder runs in a thread that stops before every call; Hypothesis says who makes the next one
and who dies. Afterwards the laws of DESIGN §8 about commits and lineage must hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.memory_store import Crash, MemoryStore
from rtj_sidecar.checkpoints.types import Gate, GateResult, PartFiles
from rtj_sidecar.runs.fence import Claimed, Done
from rtj_sidecar.runs.keys import SaveId, parse_fence, parse_manifest, parse_name
from rtj_sidecar.runs.lineage import lineage
from rtj_sidecar.runs.records import Parent, SaveFacts
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.base import Condition, Conflict, Head, Listed, Small, Uploaded, Written

WORLD = 2
SAVES = 2


class GatedStore(MemoryStore):
    """Asks `gate` before each call: the point where another may act, or this one die."""

    def __init__(self, objects: dict[str, tuple[bytes, str]], gate: Callable[[], None]) -> None:
        super().__init__(objects)
        self.gate = gate

    def put(self, key: str, data: bytes, *, condition: Condition = None) -> Written | Conflict:
        self.gate()
        return super().put(key, data, condition=condition)

    def get(self, key: str) -> Small | None:
        self.gate()
        return super().get(key)

    def head(self, key: str) -> Head | None:
        self.gate()
        return super().head(key)

    def list(self, prefix: str) -> Iterator[Listed]:
        self.gate()
        return super().list(prefix)

    def upload_file(self, key: str, path: Path, **options: Any) -> Uploaded:
        self.gate()
        return super().upload_file(key, path, **options)


def both_ranks(layout: str, parts: Sequence[PartFiles], world: int) -> GateResult:
    there = {part.rank for part in parts}
    return GateResult(Gate.SET, there == set(range(world)), f"ranks {sorted(there)}")


@dataclass
class Job:
    """The store, a clock that ticks at each write, and what the attempts did."""

    disk: Path
    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    ticks: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    written: dict[str, int] = field(default_factory=dict)
    started_from: dict[int, Parent] = field(default_factory=dict)
    offered: dict[int, set[str]] = field(default_factory=dict)
    honours_conditions: bool = True

    def run(self, rank: int, gate: Callable[[], None]) -> Run:
        store = GatedStore(self.objects, gate)
        store.honours_conditions = self.honours_conditions

        def note(key: str) -> None:
            self.written.setdefault(key.removeprefix("r/"), next(self.ticks))

        store.after_write = note
        return Run(
            store=store,
            run_id="r",
            cluster_uid="c",
            job_uid="j",
            rank=rank,
            union_gate=both_ranks,
            workers=1,
            pause=lambda _: gate(),
        )

    def attempt(self, number: int, gate: Callable[[], None], *, saves: int = SAVES) -> None:
        """One attempt as the agents of both ranks live it."""
        zero, one = self.run(0, gate), self.run(1, gate)
        claimed = zero.claim(attempt=number, world_size=WORLD)
        if not isinstance(claimed, Claimed):
            return
        fence = claimed.fence
        history = zero.publishing.roll_forward(zero.history(), fence=fence).history
        if claimed.record.parent is None:
            listed = [c for c in zero.candidates(history) if c.durable and c.invalid is None]
            self.offered[fence] = {c.name for c in listed}
            parent = zero.position_of(history, listed[0].name) if listed else Parent(scratch=True)
            if not isinstance(zero.set_parent(fence=fence, parent=parent), Done):
                return
        else:
            parent = claimed.record.parent
        self.started_from[fence] = parent
        for k in range(1, saves + 1):
            step = (parent.step or 0) + 10 * k
            save = SaveFacts(root_key=f"s{step}", layout="x", step=step, full_state=True)
            named = zero.publishing.name_ship(
                fence=fence,
                n=k,
                save=save,
                seen={0: ["shard0"], 1: ["shard1"]},
                world_size=WORLD,
                parent=parent,
            )
            assert isinstance(named, Named)
            for rank, run in ((0, zero), (1, one)):
                source = self.disk / f"{fence}-{k}-{rank}"
                source.write_text(f"step {step} of fence {fence}, rank {rank}")
                file = LocalFile(f"shard{rank}", source, source.stat().st_size, 0o644)
                run.moving.upload_part(named.ship, files=[file], save=save)
            zero.publishing.try_commit(named.ship, fence=fence)


class Turns:
    """Runs programs in threads, one call at a time, in a given order."""

    def __init__(self, programs: Sequence[Callable[[Callable[[], None]], None]]) -> None:
        self._back = threading.Semaphore(0)
        self._go = [threading.Semaphore(0) for _ in programs]
        self._dies = [False] * len(programs)
        self.alive = [True] * len(programs)
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._main, args=(i, program), daemon=True)
            for i, program in enumerate(programs)
        ]
        for thread in self._threads:
            thread.start()

    def _main(self, i: int, program: Callable[[Callable[[], None]], None]) -> None:
        self._go[i].acquire()
        try:
            program(lambda: self._gate(i))
        except Crash:
            pass
        except BaseException as error:
            self.errors.append(error)
        self.alive[i] = False
        self._back.release()

    def _gate(self, i: int) -> None:
        self._back.release()
        self._go[i].acquire()
        if self._dies[i]:
            raise Crash

    def step(self, i: int, *, dies: bool = False) -> None:
        if self.alive[i]:
            self._dies[i] = dies
            self._go[i].release()
            self._back.acquire()

    def finish(self) -> None:
        for i, alive in enumerate(self.alive):
            while alive and self.alive[i]:
                self.step(i)
        for thread in self._threads:
            thread.join(10)


def run_all(job: Job, *, attempts: int, order: list[int], deaths: dict[int, int]) -> None:
    """`order`: which attempt acts next, many calls at a time; `deaths`: attempt -> turn."""
    turns = Turns([lambda gate, n=n: job.attempt(n, gate) for n in range(1, attempts + 1)])
    for turn, who in enumerate(order):
        i = who % attempts
        dies = deaths.get(i) is not None and turn >= deaths[i]
        # A few calls at a time reach deeper than single ones.
        for _ in range(1 if dies else 1 + who // attempts):
            turns.step(i, dies=dies)
    turns.finish()
    assert turns.errors == []


def check_laws(job: Job) -> None:
    last = job.run(0, lambda: None)
    final = last.claim(attempt=99, world_size=WORLD)
    assert isinstance(final, Claimed)
    history = last.publishing.roll_forward(last.history(), fence=final.fence).history
    chain = lineage(history)

    # No torn commit: every file of both ranks is there, as recorded and as that attempt wrote it.
    for save, manifest in history.manifests.items():
        assert [file.path for file in manifest.files] == ["shard0", "shard1"]
        for rank, file in enumerate(manifest.files):
            body, _ = job.objects[f"r/{file.key}"]
            assert hashlib.sha256(body).hexdigest() == file.sha256
            assert body.decode() == f"step {manifest.step} of fence {save.fence}, rank {rank}"

    # Every committed save is reachable or on a branch.
    assert set(history.manifests) == {
        save for save in (*chain.saves, *chain.branches) if save in history.manifests
    }

    # Nobody starts from what was not offered, and scratch only where nothing had been offered.
    for fence, parent in job.started_from.items():
        if parent.scratch:
            assert job.offered.get(fence, set()) == set()
        elif fence in job.offered:
            assert parent.name in job.offered[fence]

    claims = {
        number: job.written[key] for key in job.written if (number := parse_fence(key)) is not None
    }
    committed = {
        save: tick for key, tick in job.written.items() if (save := parse_manifest(key)) is not None
    }
    started = sorted(record.fence for record in history.fences if record.parent is not None)
    for save, tick in committed.items():
        later = next((fence for fence in started if fence > save.fence), None)
        if later is None or tick < claims[later]:
            # Durable before anybody started after it: never lost.
            assert save in chain.saves
            if later is not None:
                assert history.manifests[save].name in job.offered[later]
        elif save not in chain.saves:
            # Written after a newer fence was claimed, and not seen by it: a branch for ever.
            assert history.manifests[save].name not in job.offered[later]
    # What is reachable is so through parents alone: nothing that a zombie added after them.
    parents = {record.fence: record.parent for record in history.fences}
    limits: dict[int, int] = {}
    for newer in chain.fences:
        parent = parents[newer]
        if parent is not None and (at := parse_name(parent.name or "")) is not None:
            limits[at.fence] = at.n
    for save in chain.saves:
        assert save.fence in chain.fences
        assert save.n <= limits.get(save.fence, save.n)
    steps = [history.manifests[save].step for save in chain.saves if save in history.manifests]
    assert steps == sorted(steps, key=lambda step: -(step or 0))


@settings(max_examples=120, deadline=None)
@given(
    order=st.lists(st.integers(0, 11), max_size=120),
    deaths=st.dictionaries(st.integers(0, 2), st.integers(0, 60), max_size=2),
)
def test_laws_hold_for_overlapping_attempts(order: list[int], deaths: dict[int, int]) -> None:
    with tempfile.TemporaryDirectory() as disk:
        job = Job(Path(disk))
        run_all(job, attempts=3, order=order, deaths=deaths)
        check_laws(job)


@settings(max_examples=120, deadline=None)
@given(
    order=st.lists(st.integers(0, 11), max_size=120),
    deaths=st.dictionaries(st.integers(0, 2), st.integers(0, 60), max_size=2),
)
def test_laws_hold_for_overlapping_attempts_without_conditional_writes(
    order: list[int], deaths: dict[int, int]
) -> None:
    """Attempts of one job never share a number, so only one of them ever writes a record."""
    with tempfile.TemporaryDirectory() as disk:
        job = Job(Path(disk), honours_conditions=False)
        run_all(job, attempts=3, order=order, deaths=deaths)
        check_laws(job)


def normal(objects: dict[str, tuple[bytes, str]]) -> dict[str, Any]:
    """The store without what may differ between two lives: times, nonces, ETags."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            gone = {"nonce", "etag", "timestamp"}
            return {k: strip(v) for k, v in value.items() if k not in gone and not k.endswith("At")}
        return [strip(each) for each in value] if isinstance(value, list) else value

    return {
        key: strip(json.loads(body)) if key.endswith(".json") else body
        for key, (body, _) in objects.items()
    }


def test_a_death_between_any_two_calls_leads_to_the_same_end_state(tmp_path: Path) -> None:
    whole = Job(tmp_path)
    calls = itertools.count()
    whole.attempt(1, lambda: next(calls) and None)
    expected, total = normal(whole.objects), next(calls)
    assert {str(parse_manifest(key.removeprefix("r/"))) for key in expected} >= {"f1-n1", "f1-n2"}
    assert total > 50
    for death in range(total):
        job, count = Job(tmp_path), itertools.count()

        def gate(count: Iterator[int] = count, death: int = death) -> None:
            if next(count) == death:
                raise Crash

        try:
            job.attempt(1, gate)
        except Crash:
            pass
        else:
            raise AssertionError(f"call {death} was not reached")
        job.attempt(1, lambda: None)
        assert normal(job.objects) == expected, f"died before call {death}"


def test_a_death_after_any_write_loses_no_complete_save(tmp_path: Path) -> None:
    """The attempt dies for good after its k-th write; the next one takes over."""
    whole = Job(tmp_path)
    whole.attempt(1, lambda: None)
    writes = len(whole.written) + 1
    for death in range(1, writes + 1):
        job = Job(tmp_path)
        run_ticks = job.ticks

        def die_at(death: int = death, ticks: Iterator[int] = run_ticks) -> Iterator[int]:
            for tick in ticks:
                if tick > death:
                    raise Crash
                yield tick

        job.ticks = die_at()
        with contextlib.suppress(Crash):
            job.attempt(1, lambda: None)
        parts = {key for key in job.objects if key.startswith("r/parts/f1/")}
        complete = [n for n in (1, 2) if {f"r/parts/f1/{n}/{r}.json" for r in (0, 1)} <= parts]
        job.ticks = itertools.count(1000)
        job.attempt(2, lambda: None, saves=0)
        committed = {parse_manifest(key.removeprefix("r/")) for key in job.objects} - {None}
        started = job.started_from.get(1) is not None
        assert committed == ({SaveId(1, n) for n in complete} if started else set())
