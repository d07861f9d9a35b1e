"""One look at all records of a run, as plain data.

Read in this order: fences, ships and manifests, marks, parts of what is undecided; what is written
meanwhile may be missed but never makes a record appear without those it rests on, nor a save open
that was committed before its ship was seen. Judges nothing: see `lineage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from rtj_api.reasons import Reason

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.bundles import WORTH, Known, believed, read_bundles
from rtj_sidecar.runs.context import OF_ONE_RECORD, Context
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.mark_bundles import MarkId, bundled_marks, listed_marks
from rtj_sidecar.runs.records import (
    FenceRecord,
    ManifestRecord,
    MarkKind,
    MarkRecord,
    Outcome,
    PartRecord,
    ShipRecord,
)
from rtj_sidecar.runs.unfit import against
from rtj_sidecar.stores.base import StoreProblem

CONDEMNING = (MarkKind.INVALID, MarkKind.POISON, MarkKind.DROPPED)


@dataclass(frozen=True, slots=True)
class History:
    """`ships` hold what has no readable manifest, `parts` what is not dropped either; `broken`: key
    -> what is wrong."""

    fences: tuple[FenceRecord, ...] = ()
    ships: Mapping[SaveId, ShipRecord] = field(default_factory=dict)
    parts: Mapping[SaveId, Mapping[int, PartRecord]] = field(default_factory=dict)
    manifests: Mapping[SaveId, ManifestRecord] = field(default_factory=dict)
    marks: Mapping[SaveId, tuple[MarkRecord, ...]] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    """checkpoint.validation.requiredKeys as they are now."""
    named: frozenset[SaveId] = frozenset()
    """Every save that any record bears, deleted ones included: their numbers are used up."""

    @property
    def highest(self) -> int:
        return self.fences[-1].fence if self.fences else 0

    @property
    def complete(self) -> bool:
        """The newest fence says that its job succeeded."""
        return bool(self.fences) and self.fences[-1].outcome == Outcome.COMPLETE

    @property
    def ever_durable(self) -> bool:
        """Some save was committed once, on whatever branch."""
        return bool(self.manifests) or any(
            mark.kind == MarkKind.DELETED for marks in self.marks.values() for mark in marks
        )

    def fence(self, number: int) -> FenceRecord | None:
        return next((record for record in self.fences if record.fence == number), None)

    def before(self, number: int) -> int | None:
        """The next lower fence that exists."""
        lower = [record.fence for record in self.fences if record.fence < number]
        return lower[-1] if lower else None

    def condemned(self, save: SaveId) -> MarkRecord | None:
        """The mark that forbids to resume from it, if any that a person has not taken back; or what
        its own facts say, unless a person called it good."""
        found: MarkRecord | None = None
        is_good = False
        for mark in self.marks.get(save, ()):
            if mark.kind in CONDEMNING and found is None:
                found = mark
            elif mark.kind == MarkKind.GOOD and mark.reason != Reason.CHECKPOINT_CLEARED:
                is_good = True
                if found and found.kind != MarkKind.DROPPED:
                    found = None
        return found if found is not None or is_good else self._unfit(save)

    def _unfit(self, save: SaveId) -> MarkRecord | None:
        manifest = self.manifests.get(save)
        said = against(manifest.facts, required=self.required) if manifest is not None else None
        if manifest is None or said is None:
            return None
        return MarkRecord(
            kind=MarkKind.INVALID,
            reason=said[0],
            message=f"{manifest.name}: {said[1]}",
            by_fence=manifest.committed_by_fence,
            marked_at=manifest.committed_at,
        )

    def has_broken(self, save: SaveId) -> bool:
        """It was committed, and its commit record cannot be read."""
        return keys.manifest_key(save) in self.broken

    def deleted(self, save: SaveId) -> bool:
        return any(mark.kind == MarkKind.DELETED for mark in self.marks.get(save, ()))

    def pinned(self, save: SaveId) -> bool:
        """The last word on it is a pin."""
        pins = (MarkKind.PINNED, MarkKind.UNPINNED)
        words = [mark.kind for mark in self.marks.get(save, ()) if mark.kind in pins]
        return words[-1:] == [MarkKind.PINNED]

    def archived(self, save: SaveId) -> bool:
        """Every object of it was moved to a slower class of the store."""
        return any(
            mark.kind == MarkKind.ARCHIVED and mark.reason == Reason.CHECKPOINT_ARCHIVED
            for mark in self.marks.get(save, ())
        )

    def next_n(self, fence: int) -> int:
        """The first number that no save of that fence bears."""
        return max((save.n for save in self.named if save.fence == fence), default=0) + 1


def read_history(
    context: Context,
    *,
    cache: dict[SaveId, ManifestRecord] | None = None,
    said: dict[MarkId, MarkRecord] | None = None,
    named: dict[SaveId, ShipRecord] | None = None,
) -> History:
    """`cache` keeps manifests, `said` marks, `named` ships between calls: none ever changes."""
    cache = {} if cache is None else cache
    said = {} if said is None else said
    named = {} if named is None else named
    fences = sorted(
        number for key in context.keys(keys.FENCES) if (number := keys.parse_fence(key)) is not None
    )
    listed: dict[SaveId, str | None] = {}
    unread: dict[SaveId, str | None] = {}
    with context.aside() as begin:
        reading_ships = begin(lambda: _ids(context, keys.SHIPS, keys.parse_ship))
        bundles: Callable[[], list[Known]] | None = None
        for save, etag in _listed(context):
            listed[save] = etag
            if save not in cache:
                unread[save] = etag
            if bundles is None and len(unread) >= WORTH:
                bundles = begin(lambda: read_bundles(context))
        ships = reading_ships()
        marks = listed_marks(context)
        fence_records = context.map(
            lambda number: context.read(keys.fence_key(number), FenceRecord), fences
        )
        if bundles is not None:
            cache |= believed(bundles(), unread)
    # Ships were listed beside manifests: whether one was committed meanwhile is asked for by name,
    # or where there are many, by another listing.
    open_yet = [save for save in ships if save not in listed]
    if len(open_yet) >= WORTH:
        listed |= listed_manifests(context)
        open_yet = [save for save in open_yet if save in listed]
    known = cache.copy()  # what another look at this moment takes out is none of ours
    for save in open_yet:
        known.pop(save, None)
    manifests = sorted({*listed, *open_yet})
    broken: dict[str, str] = {}

    def manifest(save: SaveId) -> None:
        try:
            read = context.read(keys.manifest_key(save), ManifestRecord)
        except StoreProblem as problem:
            if problem.reason not in OF_ONE_RECORD:
                raise  # the store could not be asked: unknown is not broken
            broken[keys.manifest_key(save)] = problem.message
            return
        if read is not None:
            known[save] = cache[save] = read[0]
        else:
            cache.pop(save, None)

    context.map(manifest, [save for save in manifests if save not in known])
    committed = {save: known[save] for save in manifests if save in known}
    pending = [save for save in ships if save not in committed]
    unheard = [save for save in pending if save not in named]
    ship_records = context.map(lambda s: context.read(keys.ship_key(s), ShipRecord), unheard)
    named |= {save: at[0] for save, at in zip(unheard, ship_records, strict=True) if at is not None}
    _read_marks(context, marks, said)
    # Only of what is open: a long run has more parts than all other records together.
    dropped = _dropped(said)
    undecided = [save for save in pending if save not in dropped]
    wanted = [at for found in context.map(partial(_parts_of, context), undecided) for at in found]
    part_records = context.map(
        lambda at: context.read(keys.part_key(at[0], at[1]), PartRecord), wanted
    )
    found_parts: dict[SaveId, dict[int, PartRecord]] = {}
    for (save, rank), part in zip(wanted, part_records, strict=True):
        if part is not None:
            found_parts.setdefault(save, {})[rank] = part[0]
    found_marks: dict[SaveId, tuple[MarkRecord, ...]] = {}
    for at in sorted(marks):
        if at in said:
            found_marks[at[0]] = (*found_marks.get(at[0], ()), said[at])
    return History(
        fences=tuple(found[0] for found in fence_records if found is not None),
        ships={
            save: named[save] for save in pending if save in named and named[save].reserved is None
        },
        parts=found_parts,
        manifests=committed,
        marks=found_marks,
        broken=broken,
        required=context.about.required,
        named=frozenset([*ships, *manifests, *(save for save, _ in marks)]),
    )


def _read_marks(
    context: Context,
    marks: Mapping[MarkId, str | None],
    said: dict[MarkId, MarkRecord],
) -> None:
    """Into `said`: what it does not know yet of the listed marks."""
    new = {at: etag for at, etag in sorted(marks.items()) if at not in said}
    if len(new) >= WORTH:
        said |= bundled_marks(context, new)
    left = [at for at in new if at not in said]
    read = context.map(lambda at: context.read(keys.mark_key(*at), MarkRecord), left)
    said |= {at: mark[0] for at, mark in zip(left, read, strict=True) if mark is not None}


def _dropped(said: Mapping[MarkId, MarkRecord]) -> set[SaveId]:
    """Saves that will never be committed, whatever their parts say."""
    # Another look at this moment adds to it.
    known = dict(said)
    return {save for (save, _), mark in known.items() if mark.kind == MarkKind.DROPPED}


def listed_manifests(context: Context) -> dict[SaveId, str | None]:
    """Every manifest that is there, with its ETag where the store lists it."""
    return dict(_listed(context))


def _listed(context: Context) -> Iterator[tuple[SaveId, str | None]]:
    skip = len(context.full(""))
    for each in context.store.list(context.full(keys.MANIFESTS)):
        if (save := keys.parse_manifest(each.key[skip:])) is not None:
            yield save, each.etag


def _parts_of(context: Context, save: SaveId) -> list[tuple[SaveId, int]]:
    there = context.keys(f"{keys.PARTS}f{save.fence}/{save.n}/")
    return [found for key in there if (found := keys.parse_part(key)) is not None]


def _ids(context: Context, prefix: str, parse: Callable[[str], SaveId | None]) -> list[SaveId]:
    return sorted(found for key in context.keys(prefix) if (found := parse(key)) is not None)
