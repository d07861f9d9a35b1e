"""Naming a save and answering for it: the two records that come before a commit.

The holder names; every rank answers once, with its files or with none. Both records are created if
absent and never changed, so whoever asks again gets what was said first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.lineage import ignored
from rtj_sidecar.runs.records import Parent, PartRecord, SaveFacts, ShipRecord


@dataclass(frozen=True, slots=True)
class Named:
    ship: ShipRecord


@dataclass(frozen=True, slots=True)
class Ignored:
    """CheckpointIgnored: the save lies below what this attempt resumed from."""

    message: str


def name_ship(
    context: Context,
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
    """Name a save as the n-th of this fence; a number that another save bears is passed over.

    `seen`: rank -> paths of its files of this save. The same save asked for again (same root,
    step and number) gets the record that is there. `made_in`: the attempt whose trainers made it,
    0 where it lay there before any; `asked`, `shape`: see `ShipRecord`.
    """
    here = Parent(name=save.root_key, step=save.step, epoch=save.epoch)
    if why := ignored(parent, here):
        return Ignored(why)
    counted = Counter(path for paths in seen.values() for path in set(paths))
    while True:
        at = SaveId(fence, n)
        ship = ShipRecord(
            fence=fence,
            n=n,
            name=keys.save_name(at, save.step),
            root_key=save.root_key,
            layout=save.layout,
            step=save.step,
            epoch=save.epoch,
            expected=sorted(seen),
            contested=sorted(path for path, times in counted.items() if times > 1),
            world_size=world_size,
            adopted=made_in == 0,
            made_in=made_in,
            asked=sorted(asked),
            shape=dict(shape or {}),
            named_at=context.now(),
        )
        if context.create(keys.ship_key(at), ship):
            return Named(ship)
        found = context.read(keys.ship_key(at), ShipRecord)
        if found is not None and found[0].reserved is None and _same(found[0], ship):
            return Named(found[0])
        n += 1


def reserve(
    context: Context,
    history: History,
    *,
    fence: int,
    root_key: str,
    layout: str,
    step: int | None,
) -> ShipRecord:
    """Take a number for a save that is copied from elsewhere, before its first byte: the first that
    is free, or the one that this session took for it and did not come to commit."""
    open_ones = [
        save
        for key in context.keys(f"{keys.SHIPS}f{fence}/")
        if (save := keys.parse_ship(key)) is not None and save not in history.manifests
    ]
    for found in context.map(lambda s: context.read(keys.ship_key(s), ShipRecord), open_ones):
        mine = (context.session, root_key, step)
        if found is not None and (found[0].reserved, found[0].root_key, found[0].step) == mine:
            return found[0]
    n = history.next_n(fence)
    while True:
        at = SaveId(fence, n)
        ship = ShipRecord(
            fence=fence,
            n=n,
            name=keys.save_name(at, step),
            root_key=root_key,
            layout=layout,
            step=step,
            expected=[context.rank],
            world_size=1,
            named_at=context.now(),
            reserved=context.session,
        )
        if context.create(keys.ship_key(at), ship):
            return ship
        n += 1


def read_ships(context: Context, *, fence: int, since: int) -> list[ShipRecord]:
    """The ships of a fence with a number above `since`, in order."""
    named = sorted(
        save
        for key in context.keys(f"{keys.SHIPS}f{fence}/")
        if (save := keys.parse_ship(key)) is not None and save.n > since
    )
    read = context.map(lambda save: context.read(keys.ship_key(save), ShipRecord), named)
    return [found[0] for found in read if found is not None and found[0].reserved is None]


def read_part(context: Context, save: SaveId, rank: int) -> PartRecord | None:
    found = context.read(keys.part_key(save, rank), PartRecord)
    return found[0] if found else None


def answer(context: Context, part: PartRecord) -> PartRecord:
    """Write this rank's answer; what it had answered before stands, and is returned."""
    save = SaveId(part.fence, part.n)
    if context.create(keys.part_key(save, part.rank), part):
        return part
    return read_part(context, save, part.rank) or part


def answer_none(
    context: Context, ship: ShipRecord, *, why: str, made_in: int | None = None
) -> PartRecord:
    return answer(
        context,
        PartRecord(
            fence=ship.fence,
            n=ship.n,
            rank=context.rank,
            why_none=why,
            made_in=made_in,
            written_at=context.now(),
        ),
    )


def _same(a: ShipRecord, b: ShipRecord) -> bool:
    return (a.root_key, a.layout, a.step, a.epoch) == (b.root_key, b.layout, b.step, b.epoch)
