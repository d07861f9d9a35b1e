"""One run's history in a store, as the agent uses it: the facade over this package.

All methods are synchronous and may be called from several threads; the agent runs them in threads.
A store that fails raises `stores.base.StoreProblem` (reason, message with the remedy, `transient`);
every other outcome is a returned value. `moving` moves its bytes, `publishing` names and commits
its saves, `judging` has its verdicts, `suiting` says what this gang needs of them, `tending`
retires them. Must never publish without the highest fence, nor change a record that another
decision may rest on.

Order of a holder's life: `claim` → `history` → `publishing.roll_forward` → `judging.vet` → (the
choice) → `set_parent` → go → `publishing.name_ship`, `try_commit` → `set_outcome`. On the fast
path `claim_next` takes the place of all up to `set_parent`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from rtj_api.reasons import Reason
from rtj_api.wire import Candidate, Found, Wanted

from rtj_sidecar.checkpoints.layouts import AUTO
from rtj_sidecar.runs import beginnings, keys, lineage
from rtj_sidecar.runs import fence as fences
from rtj_sidecar.runs.beginnings import OpenPlace
from rtj_sidecar.runs.commit import (
    UnionGate,
)
from rtj_sidecar.runs.context import About, Context
from rtj_sidecar.runs.fence import (
    Claimed,
    Done,
    FenceLost,
    FenceTaken,
    OwnedByOther,
    Superseded,
)
from rtj_sidecar.runs.history import History, read_history
from rtj_sidecar.runs.imports.importing import Proved, bring_in
from rtj_sidecar.runs.imports.places import Place
from rtj_sidecar.runs.imports.surveying import How
from rtj_sidecar.runs.index import newest_told, write_index
from rtj_sidecar.runs.judging import Judging
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.many_records import many_records
from rtj_sidecar.runs.moving import Moving
from rtj_sidecar.runs.publishing import Publishing
from rtj_sidecar.runs.ready import Agreement
from rtj_sidecar.runs.records import (
    FenceRecord,
    ManifestRecord,
    MarkRecord,
    Outcome,
    Parent,
    RunRecord,
    ShipRecord,
)
from rtj_sidecar.runs.suiting import Suiting
from rtj_sidecar.runs.tending import Tending
from rtj_sidecar.runs.unfit import facts_of_parts
from rtj_sidecar.stores.base import Progress, Store, StoreProblem
from rtj_sidecar.stores.open import open_store


def _new_id() -> str:
    return uuid.uuid4().hex


class Run:
    """The records of `<store>/<run_id>`, seen by one rank's sidecar.

    `about`: what its fences tell of the job; `open_place(url)`: another store, to copy from.
    `union_gate(layout, parts, world_size)` judges whether the ranks' parts make a whole save.
    `progress(bytes since the last call)` may be negative; a set `cancel` raises Cancelled.
    """

    def __init__(
        self,
        *,
        store: Store,
        run_id: str,
        cluster_uid: str,
        job_uid: str,
        rank: int,
        union_gate: UnionGate,
        now: Callable[[], float] = time.time,
        new_id: Callable[[], str] = _new_id,
        workers: int = 16,
        about: About | None = None,
        open_place: OpenPlace = open_store,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._open_place = open_place
        self._context = Context(
            store=store,
            run_id=run_id,
            cluster_uid=cluster_uid,
            job_uid=job_uid,
            rank=rank,
            now=now,
            new_id=new_id,
            workers=workers,
            about=about or About(),
            pause=pause,
        )
        self._manifests: dict[SaveId, ManifestRecord] = {}
        self._marks: dict[tuple[SaveId, int], MarkRecord] = {}
        self._ships: dict[SaveId, ShipRecord] = {}
        self.suiting = Suiting(self._context, manifest_of=self.manifest)
        self.moving = Moving(self._context, wanted=self.suiting.wanted)
        self.tending = Tending(self._context, history=self.history, forget=self._forget)
        self.publishing = Publishing(
            self._context,
            union_gate=union_gate,
            history=self.history,
            manifest_of=self.manifest,
            committed=self._manifests,
        )
        self.judging = Judging(self._context, manifest_of=self.manifest, history=self.history)

    def _forget(self, name: str) -> None:
        """Its manifest is not there any more."""
        if (save := keys.parse_name(name)) is not None:
            self._manifests.pop(save, None)

    # --- the holder (rank 0) ---------------------------------------------------------------------

    def open(self) -> RunRecord:
        """`run.json`; probes the store and makes it the first time. Part of `claim`."""
        return fences.open_run(self._context)

    @property
    def honours_conditions(self) -> bool:
        """Whether the store does, once the run is open; see `conditions`."""
        return self._context.honours_conditions()

    @property
    def url(self) -> str:
        """Without credentials."""
        return f"{self._context.store.url}/{self._context.run_id}"

    def claim(
        self,
        *,
        attempt: int,
        world_size: int,
        may_claim: bool = False,
        over: str | None = None,
        outcome: Outcome | None = None,
    ) -> Claimed | OwnedByOther | Superseded:
        """Claim the next fence; called again for the same attempt, the one it has. `outcome`: said
        with the claim, by who only adds to a run that is over."""
        self.open()
        return fences.claim(
            self._context,
            attempt=attempt,
            world_size=world_size,
            may_claim=may_claim,
            over=over,
            outcome=outcome,
        )

    def newest_fence(self) -> FenceRecord | None:
        """Who holds the run now."""
        highest = self._context.highest_fence()
        found = self._context.read(keys.fence_key(highest), FenceRecord) if highest else None
        return found[0] if found else None

    def find(
        self,
        history: History,
        *,
        wanted: Wanted,
        fence: int,
        incoming: Path,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
        layout: str = AUTO,
        include: tuple[str, ...] = (),
    ) -> Found:
        """The beginning that a person named; of elsewhere: copied into this run."""
        found = beginnings.find(
            self._context,
            history,
            wanted=wanted,
            fence=fence,
            open_place=self._open_place,
            incoming=incoming,
            progress=progress,
            cancel=cancel,
            layout=layout,
            include=include,
        )
        if found.save is not None:
            write_index(self._context, self.history())
        return found

    def take_up(
        self, proved: Proved, place: Place, *, fence: int, how: How, in_line: bool
    ) -> ManifestRecord:
        """A proved save of a foreign place, copied and committed; see `imports.bring_in`."""
        history = self.history()
        manifest = bring_in(
            self._context, history, proved, place, fence=fence, how=how, in_line=in_line
        )
        write_index(self._context, self.history())
        return manifest

    def claim_next(
        self, *, held: int, attempt: int, world_size: int, parent: Parent
    ) -> Claimed | FenceTaken:
        """The fast path: exactly `held` + 1, with its parent, or nothing."""
        return fences.claim_next(
            self._context, held=held, attempt=attempt, world_size=world_size, parent=parent
        )

    def held(self, fence: int) -> bool:
        """Is this fence the highest?"""
        return fences.lost_to(self._context, fence) is None

    def history(self) -> History:
        """All records, read now."""
        with many_records():
            return read_history(
                self._context, cache=self._manifests, said=self._marks, named=self._ships
            )

    def candidates(self, history: History) -> list[Candidate]:
        """Newest first: durable ones, and named ships that are not durable yet.

        One that the framework will not load with this gang's number of processes is invalid for
        now: no mark says so, and it counts again when the number is right.
        """
        with many_records():
            found = lineage.candidates(history)
            return [self._fitting(history, save, each) for save, each in found.items()]

    def _fitting(self, history: History, save: SaveId, found: Candidate) -> Candidate:
        if (manifest := history.manifests.get(save)) is not None:
            return self.suiting.fitting(found, facts=manifest.facts)
        told = [part.save for part in history.parts.get(save, {}).values() if part.save]
        return self.suiting.fitting(found, facts=facts_of_parts(told))

    def position_of(self, history: History, name: str) -> Parent:
        """The save as the parent of an attempt that starts from it, for `set_parent`."""
        save = keys.parse_name(name)
        if save is None:
            raise StoreProblem(
                Reason.INVALID_SPEC, f"{name!r} is no save's name: write f<fence>-n<n>-s<step>"
            )
        found = lineage.position(history, save)
        return Parent(
            name=name,
            step=keys.step_in(name) if found.step is None else found.step,
            epoch=found.epoch,
        )

    def set_parent(self, *, fence: int, parent: Parent) -> Done | FenceLost:
        """Record what the attempt starts from; before the go, once."""
        return fences.set_parent(self._context, fence=fence, parent=parent)

    def set_outcome(self, *, fence: int, outcome: Outcome) -> Done | FenceLost:
        return fences.set_outcome(self._context, fence=fence, outcome=outcome)

    def next_n(self, history: History, fence: int) -> int:
        """The first free number for a save of that fence."""
        return history.next_n(fence)

    # --- every rank ------------------------------------------------------------------------------

    @property
    def agreement(self) -> Agreement:
        """What the ranks of an attempt agree on through the store, where reports do not get out."""
        return Agreement(self._context)

    def manifest(self, name: str) -> ManifestRecord | None:
        """None where it is not committed. Raises StoreProblem RUN_DAMAGED where it is broken."""
        save = keys.parse_name(name)
        if save is None:
            return None
        if save not in self._manifests:
            found = self._context.read(keys.manifest_key(save), ManifestRecord)
            if found is None:
                return None
            self._manifests[save] = found[0]
        return self._manifests[save]

    def newest_told(self) -> str | None:
        """The newest valid save by the index: what a fetch ahead is worth. Raises StoreProblem."""
        return newest_told(self._context)
