"""The store of a simulated world: the sidecar's own code of a run's records, over memory.

Fences, names, parts, roll-forward, commits, marks and lineage are `rtj_sidecar.runs` as it is;
only a file's bytes are put without a disk or a line. Says nothing of when: `kit.simulated_holding`
does. Must never let pass what a law forbids: `LawBroken` is raised at once.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_sidecar.checkpoints.types import Gate, GateResult
from rtj_sidecar.runs import keys, marks, ships
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import Claimed
from rtj_sidecar.runs.lineage import End, candidate, lineage
from rtj_sidecar.runs.records import FileRecord, MarkKind, Parent, PartRecord, SaveFacts, ShipRecord
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.stores.local import crc64, crc64_text

from kit.memory_store import Crash, MemoryStore
from kit.simulated_laws import LawBroken

if TYPE_CHECKING:
    from kit.simulated_pod import Pod

RUN_ID = "ns/gpt"


@dataclass
class Save:
    """One that rank 0 ships; `ship`: its name's record, once the store has it."""

    name: str
    step: int
    written_at: float
    done_at: float | None = None  # when its upload would be finished
    durable: bool = False
    fence: int = 0
    ship: ShipRecord | None = None


SCRATCH = Parent(scratch=True)


def parent_of(resume: wire.Resume) -> Parent:
    return SCRATCH if resume.scratch else Parent(name=resume.name, step=resume.step)


@dataclass
class Store:
    """`saves`: what was committed, oldest first; `refused`: how often a zombie tried it."""

    objects: MemoryStore = field(default_factory=MemoryStore)
    saves: list[Save] = field(default_factory=list)
    reachable: bool = True
    refused: int = 0
    job_uid: str = ""
    world_size: int = 1
    layout: str = "generic"
    clock: Callable[[], float] = lambda: 0.0
    crash_in: int = 0  # the sidecar that makes the so-many-th write from now dies before it
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    invalid: set[str] = field(default_factory=set)  # what was ever condemned
    _completed: tuple[int, int, bool] | None = None
    _looked: tuple[int, list[wire.Candidate], frozenset[str]] | None = None

    def __post_init__(self) -> None:
        self.objects.before_write = self._before_write

    def _before_write(self, key: str) -> None:
        if self.crash_in:
            self.crash_in -= 1
            if self.crash_in == 0:
                raise Crash(key)

    # --- what tests look at ---------------------------------------------------------------------

    @property
    def fence(self) -> int:
        return self._context().highest_fence()

    def candidates(self) -> list[wire.Candidate]:
        """The lineage, newest first, as rank 0's sidecar lists it."""
        return self._look()[1]

    def by_name(self, name: str) -> wire.Candidate | None:
        """A committed save, also of a branch: what a person or the operator may ask for."""
        save = keys.parse_name(name)
        history = self._run("someone", 0).history()
        return candidate(history, save) if save in history.manifests else None

    def bears(self, name: str) -> bool:
        """Some record is of that save: of the line, of a branch, or dropped."""
        save = keys.parse_name(name)
        return save is not None and str(save) in self._look()[2]

    def _look(self) -> tuple[int, list[wire.Candidate], frozenset[str]]:
        if self._looked is None or self._looked[0] != self.objects.writes:
            run = self._run("someone", 0)
            history = run.history()
            named = frozenset(str(save) for save in history.named)
            self._looked = (self.objects.writes, run.candidates(history), named)
        return self._looked

    def valid(self) -> list[Save]:
        """Of the line, oldest first."""
        line = {c.name for c in self.candidates() if c.durable and c.invalid is None}
        return [s for s in self.saves if s.name in line]

    def newest(self) -> Save | None:
        """What an attempt that begins now would begin from, of what is durable."""
        good = (c.name for c in self.candidates() if c.durable and c.invalid is None)
        name = next(good, None)
        return next((s for s in self.saves if s.name == name), None)

    def can_restore(self, name: str) -> bool:
        return any(s.name == name for s in self.saves) and name not in self.invalid

    def condemn(self, name: str, *, kind: MarkKind, reason: Reason) -> None:
        """Somebody found it so; the mark stays."""
        save = keys.parse_name(name)
        if save is not None and name not in self.invalid:
            self.invalid.add(name)
            self.crash_in = 0  # nobody's sidecar makes this write
            marks.mark(
                self._context(), save, kind=kind, reason=reason, message="not as it was recorded"
            )

    def check_lineage(self) -> None:
        """From the newest fence a chain of saves leads to the beginning; or LawBroken."""
        run = self._run("someone", 0)
        history = run.history()
        found = lineage(history)
        if found.end is End.BROKEN or history.broken:
            raise LawBroken(f"the lineage is broken: {found.fences}, {history.broken}")
        told = {s.name for s in self.saves} | {
            m.name for s, m in history.manifests.items() if s in {*found.saves, *found.branches}
        }
        lost = told - {m.name for m in history.manifests.values()}
        if lost:
            raise LawBroken(f"{lost} was committed and is not there")

    # --- what a sidecar of rank 0 does ----------------------------------------------------------

    def claim(self, pod: Pod, *, attempt: int, has_files: bool) -> int | None:
        """The attempt's fence; None for a zombie. `has_files`: of the ships that were left."""
        claimed = self._run(pod.uid, pod.boot).claim(attempt=attempt, world_size=self.world_size)
        if not isinstance(claimed, Claimed):
            return None
        self.complete(pod, fence=claimed.fence, has_files=has_files)
        return claimed.fence

    def complete(self, pod: Pod, *, fence: int, has_files: bool) -> None:
        """What earlier fences left: committed where whole, dropped where it never can be."""
        if self._completed == (self.objects.writes, fence, has_files):
            return
        run = self._run(pod.uid, pod.boot)
        done = run.publishing.roll_forward(
            run.history(), fence=fence, gone=() if has_files else {0}
        )
        for name in done.committed:
            self._note(name, fence=fence)
        self._completed = (self.objects.writes, fence, has_files)

    def claim_next(self, pod: Pod, *, held: int, attempt: int, parent: Parent) -> int | None:
        """The number that follows the held one, or nothing."""
        claimed = self._run(pod.uid, pod.boot).claim_next(
            held=held, attempt=attempt, world_size=self.world_size, parent=parent
        )
        return claimed.fence if isinstance(claimed, Claimed) else None

    def set_parent(self, pod: Pod, *, fence: int, parent: Parent) -> None:
        self._run(pod.uid, pod.boot).set_parent(fence=fence, parent=parent)

    def name(self, pod: Pod, save: Save, *, parent: Parent) -> ShipRecord:
        """The save gets its name in the store, the one that it has on the disks."""
        named = self._run(pod.uid, pod.boot).publishing.name_ship(
            fence=save.fence,
            n=save.step,
            save=self._facts(save),
            seen={0: [_path(save)]},
            world_size=pod.trainer.world if pod.trainer is not None else self.world_size,
            parent=parent,
        )
        if not isinstance(named, Named) or named.ship.name != save.name:
            raise LawBroken(f"{save.name} cannot get its name: {named}")
        return named.ship

    def send(self, save: Save, ship: ShipRecord) -> None:
        """All its bytes are in the store, and rank 0's share says so."""
        path, body = _path(save), save.name.encode()
        key = keys.data_key(save.name, path)
        context = self._context()
        self.objects.put(context.full(key), body)
        file = FileRecord(
            path=path,
            key=key,
            size=len(body),
            sha256=hashlib.sha256(body).hexdigest(),
            crc64nvme=crc64_text(crc64(body)),
        )
        part = PartRecord(
            fence=ship.fence,
            n=ship.n,
            rank=0,
            files=[file],
            save=self._facts(save),
            written_at=self.clock(),
        )
        ships.answer(context, part)

    def commit(self, pod: Pod, ship: ShipRecord, *, fence: int) -> bool:
        """Whether it is committed; a zombie is refused, and counted."""
        outcome = self._run(pod.uid, pod.boot).publishing.try_commit(ship, fence=fence)
        if not isinstance(outcome, Committed):
            self.refused += 1
            return False
        self._note(ship.name, fence=fence)
        return True

    def _note(self, name: str, *, fence: int) -> None:
        save = keys.parse_name(name)
        if save is None or any(s.name == name for s in self.saves):
            return
        self.publishes_as_holder(name, fence=fence)
        now = self.clock()
        step = keys.step_in(name) or 0
        self.saves.append(Save(name, step, now, now, durable=True, fence=save.fence))

    def _facts(self, save: Save) -> SaveFacts:
        return SaveFacts(
            root_key=_path(save),
            layout=self.layout,
            step=save.step,
            full_state=True,
            status="Verified",
        )

    def publishes_as_holder(self, name: str, *, fence: int) -> None:
        """Only the newest holder publishes, or LawBroken."""
        if fence < self.fence:
            raise LawBroken(f"{name} was published by fence {fence} below {self.fence}")

    def _run(self, uid: str, boot: int) -> Run:
        """As one life of one sidecar has it."""
        if (uid, boot) not in self._runs:
            self._runs[uid, boot] = Run(
                store=self.objects,
                run_id=RUN_ID,
                cluster_uid="cluster",
                job_uid=self.job_uid,
                rank=0,
                union_gate=lambda *_: GateResult(Gate.SET, None, "one rank writes all"),
                now=lambda: self.clock(),
                new_id=lambda: f"nonce-{next(self._numbers)}",
                workers=1,
            )
        return self._runs[uid, boot]

    def _context(self) -> Context:
        return Context(
            store=self.objects,
            run_id=RUN_ID,
            cluster_uid="cluster",
            job_uid=self.job_uid,
            rank=0,
            now=lambda: self.clock(),
            new_id=lambda: f"nonce-{next(self._numbers)}",
            workers=1,
        )


def _path(save: Save) -> str:
    return f"step_{save.step}.pt"
