"""From a finished save to a commit record, and what is left of those that never get there.

The holder names, commits, rolls forward and sweeps; every rank answers. Synchronous, and from
several threads, as all of `runs`. Must never publish without the highest fence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping

from rtj_sidecar.runs import ships
from rtj_sidecar.runs.bundles import write_bundles
from rtj_sidecar.runs.commit import (
    Committed,
    Dropped,
    UnionGate,
    Waiting,
    commit,
    fence_of,
    not_its_own,
    parts_of,
)
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import FenceLost
from rtj_sidecar.runs.history import History, listed_manifests
from rtj_sidecar.runs.index import write_index
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.mark_bundles import write_mark_bundles
from rtj_sidecar.runs.records import ManifestRecord, Parent, PartRecord, SaveFacts, ShipRecord
from rtj_sidecar.runs.rollforward import RolledForward, roll_forward
from rtj_sidecar.runs.ships import Ignored, Named
from rtj_sidecar.runs.sweep import Swept, sweep


class Publishing:
    """`history()`: the run's records, read now; `manifest_of(name)`: None where it is not
    committed; `committed`: manifests that are known, which a commit adds to."""

    def __init__(
        self,
        context: Context,
        *,
        union_gate: UnionGate,
        history: Callable[[], History],
        manifest_of: Callable[[str], ManifestRecord | None],
        committed: MutableMapping[SaveId, ManifestRecord],
    ) -> None:
        self._context = context
        self._union_gate = union_gate
        self._history = history
        self._manifest_of = manifest_of
        self._committed = committed

    def name_ship(
        self,
        *,
        fence: int,
        n: int,
        save: SaveFacts,
        seen: Mapping[int, Collection[str]],
        world_size: int,
        parent: Parent | None,
        made_in: int | None = None,
        asked: Collection[int] = (),
        shape: Mapping[int, str] | None = None,
    ) -> Named | Ignored:
        """Name a save. `seen`: rank -> paths of its files; `parent`: what this attempt began from;
        `made_in`: the attempt whose trainers made it, 0 where it lay there before any;
        `asked`: ranks that may have a share, and have said nothing.

        `n` taken by another save: the next free one is used, see `Named.ship`. Ignored: the save
        lies below its parent (reason CheckpointIgnored); nothing was written.
        """
        return ships.name_ship(
            self._context,
            fence=fence,
            n=n,
            save=save,
            seen=seen,
            world_size=world_size,
            parent=parent,
            made_in=made_in,
            asked=asked,
            shape=shape,
        )

    def try_commit(
        self,
        ship: ShipRecord,
        *,
        fence: int,
        gone: Collection[int] = (),
        told: Collection[int] = (),
    ) -> Committed | Waiting | Dropped | Ignored | FenceLost:
        """Commit a ship (of this or an earlier fence) if all is there. `fence`: the held one;
        `gone`, `told`: see `commit`.

        Call it whenever a part was written. Dropped and Ignored are final and marked; but where
        another save has the number, which stays as it is.
        """
        there = self._manifest_of(ship.name)
        if there is not None and there.name != ship.name:
            return not_its_own(there, ship)
        if there is not None:
            # An earlier life of this holder may have died between manifest and index.
            write_index(self._context, self._history())
            return Committed(there)
        outcome = commit(
            self._context,
            ship,
            parts_of(self._context, ship),
            fence=fence,
            own_fence=fence_of(self._context, ship),
            union_gate=self._union_gate,
            gone=gone,
            told=told,
        )
        if isinstance(outcome, Committed):
            # Not read again: of many files that costs as much as all else that is known of them.
            self._committed.setdefault(SaveId(ship.fence, ship.n), outcome.manifest)
            write_index(self._context, self._history())
        return outcome

    def roll_forward(
        self,
        history: History,
        *,
        fence: int,
        gone: Collection[int] = (),
        told: Mapping[str, Collection[int]] | None = None,
    ) -> RolledForward:
        """Complete what earlier fences of this lineage left. `gone`: ranks without files; `told`:
        by name, who told of a share of it."""
        done = roll_forward(
            self._context,
            history,
            fence=fence,
            union_gate=self._union_gate,
            gone=gone,
            told=told or {},
        )
        # Also where nothing was done: the holder before may have died between manifest and index.
        changed = done.committed or done.dropped
        write_index(self._context, self._history() if changed else history)
        return done

    def sweep(self, *, fence: int) -> Swept | FenceLost:
        """Free what saves left that will never be committed, and bundle a long run's manifests."""
        history = self._history()
        done = sweep(self._context, history, fence=fence)
        if isinstance(done, Swept):
            write_bundles(self._context, history.manifests, listed_manifests(self._context))
            write_mark_bundles(self._context)
        return done

    def read_ships(self, *, fence: int, since: int = 0) -> list[ShipRecord]:
        """The ships of a fence numbered above `since`, in order."""
        return ships.read_ships(self._context, fence=fence, since=since)

    def answer_none(self, ship: ShipRecord, *, why: str, made_in: int | None = None) -> PartRecord:
        """This rank has no files of it. A part written before stands, and is returned.
        `made_in`: the attempt that this pod was made in."""
        return ships.answer_none(self._context, ship, why=why, made_in=made_in)

    def part(self, save: SaveId, rank: int) -> PartRecord | None:
        return ships.read_part(self._context, save, rank)
