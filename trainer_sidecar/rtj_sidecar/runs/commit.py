"""From the ranks' parts to a commit record: the manifest, written last and once.

In this order: all who are expected have answered, the union is complete by its layout's own rules,
it does not lie below what its attempt resumed from, every object is in the store as recorded, the
fence is still the highest, then the manifest if absent. A zombie that is overtaken between the last
two writes a manifest of an old fence: either the new holder still sees it before it chooses, or
its number lies above the parent that the new fence names, and it is a branch (see `lineage`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.types import GateResult, PartFiles
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import FenceLost, lost_to
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.labels import labelled
from rtj_sidecar.runs.lineage import ignored
from rtj_sidecar.runs.marks import mark
from rtj_sidecar.runs.records import (
    FenceRecord,
    FileRecord,
    ManifestRecord,
    MarkKind,
    Parent,
    PartRecord,
    SaveFacts,
    ShipRecord,
)
from rtj_sidecar.runs.ships import Ignored, read_part
from rtj_sidecar.runs.unfit import facts_of_parts
from rtj_sidecar.runs.verify import check_files
from rtj_sidecar.stores.base import StoreProblem

UnionGate = Callable[[str, Sequence[PartFiles], int | None], GateResult]
"""(layout, parts, world size or None where nobody knows) -> the set gate over all parts."""


@dataclass(frozen=True, slots=True)
class Committed:
    manifest: ManifestRecord


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not yet: these ranks have not answered."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """It will never be committed; a mark says so."""

    reason: Reason
    message: str


Outcome = Committed | Waiting | Dropped | Ignored | FenceLost


def fence_of(context: Context, ship: ShipRecord) -> FenceRecord:
    """The record of the fence that the ship was named under. Raises StoreProblem."""
    own = context.read(keys.fence_key(ship.fence), FenceRecord)
    if own is None:
        # Gone is not taken: an unmounted or emptied store must end no trainer.
        raise StoreProblem(
            Reason.RUN_DAMAGED,
            f"{context.full(keys.fence_key(ship.fence))} is gone from the store: check "
            "that it is the same bucket or volume as before, and that nobody deletes there",
            transient=True,
        )
    return own[0]


def parts_of(context: Context, ship: ShipRecord) -> dict[int, PartRecord]:
    """By rank, what has been answered so far. Raises StoreProblem."""
    ranks = [
        found[1]
        for key in context.keys(f"{keys.PARTS}f{ship.fence}/{ship.n}/")
        if (found := keys.parse_part(key)) is not None
    ]
    save = SaveId(ship.fence, ship.n)
    read = context.map(lambda rank: read_part(context, save, rank), ranks)
    return {part.rank: part for part in read if part is not None}


def commit(
    context: Context,
    ship: ShipRecord,
    parts: Mapping[int, PartRecord],
    *,
    fence: int,
    own_fence: FenceRecord,
    union_gate: UnionGate,
    gone: Collection[int] = (),
    told: Collection[int] = (),
) -> Outcome:
    """Commit a ship if it is ready. `fence` is the held one, `own_fence` the ship's own record.

    `gone`: ranks that will never answer. `told`: ranks that are known to have files of it, also
    where they had said that they have none. Raises StoreProblem: then nothing is decided.
    """
    save = SaveId(ship.fence, ship.n)
    writers = sorted({*ship.expected, *told})
    waiting = [rank for rank in writers if rank not in parts]
    if lost := sorted(set(waiting) & set(gone)):
        return _drop(
            context,
            save,
            fence,
            Reason.CHECKPOINT_TORN,
            f"{ship.name}: rank {lost[0]}, which wrote files of it, is gone with them",
        )
    if empty := [rank for rank in writers if rank in parts and not parts[rank].files]:
        why = parts[empty[0]].why_none or "it has no files of it"
        return _drop(
            context,
            save,
            fence,
            Reason.CHECKPOINT_TORN,
            f"{ship.name}: rank {empty[0]}, which wrote files of it, cannot ship them: {why}",
        )
    if waiting:
        return Waiting(tuple(waiting))
    facts = _facts(ship, parts)
    here = Parent(name=ship.name, step=facts.step, epoch=facts.epoch)
    if why_ignored := ignored(own_fence.parent, here):
        dropped = _drop(context, save, fence, Reason.CHECKPOINT_IGNORED, why_ignored)
        return dropped if isinstance(dropped, FenceLost) else Ignored(why_ignored)
    with_files = [part for _, part in sorted(parts.items()) if part.files]
    world = None if ship.adopted else ship.world_size
    gate = union_gate(ship.layout, [_part_files(part) for part in with_files], world)
    if gate.passed is False:
        # A rank that nobody expected may still hold what is missing.
        silent = [rank for rank in range(ship.world_size) if rank not in parts]
        if still := [rank for rank in silent if rank not in gone]:
            return Waiting(tuple(still))
        return _drop(
            context,
            save,
            fence,
            Reason.CHECKPOINT_TORN,
            f"{ship.name}: all ranks have answered and the set is not complete: {gate.detail}",
        )
    is_of_fence = ship.fence == fence and own_fence.attempt == ship.made_in
    if (heard := _not_heard(ship, parts, gone, is_of_fence=is_of_fence)) is not None:
        if isinstance(heard, Waiting):
            return heard
        return _drop(context, save, fence, Reason.CHECKPOINT_TORN, f"{ship.name}: {heard}")
    files = merge(with_files)
    findings = check_files(context, files)
    if findings:
        return _drop(context, save, fence, findings[0].reason, findings[0].message)
    manifest = ManifestRecord(
        run_id=context.run_id,
        name=ship.name,
        fence=ship.fence,
        n=ship.n,
        root_key=ship.root_key,
        layout=ship.layout,
        step=facts.step,
        epoch=facts.epoch,
        loss=facts.loss,
        full_state=facts.full_state,
        status=facts.status,
        world_size=ship.world_size,
        attempt=own_fence.attempt,
        job_uid=own_fence.job_uid,
        cluster_uid=own_fence.cluster_uid,
        parent=own_fence.parent,
        committed_by_fence=fence,
        committed_at=context.now(),
        ranks=[part.rank for part in with_files],
        made_in=ship.made_in,
        shape=ship.shape,
        files=files,
        gates=[*facts.gates, {"name": "union", "passed": gate.passed, "detail": gate.detail}],
        facts=facts.facts,
    )
    if overtaken := lost_to(context, fence):
        return overtaken
    if context.create(keys.manifest_key(save), manifest):
        return Committed(manifest)
    # An equal commit of another holder: what is there is the truth.
    there = context.read(keys.manifest_key(save), ManifestRecord)
    if there is not None and there[0].name != ship.name:
        return not_its_own(there[0], ship)
    return Committed(there[0] if there else manifest)


def _not_heard(
    ship: ShipRecord,
    parts: Mapping[int, PartRecord],
    gone: Collection[int],
    *,
    is_of_fence: bool,
) -> Waiting | str | None:
    """Who was silent when it got its name, and has not answered; or why nobody ever will. None
    where all have. What a layout finds whole may be one rank's share, so each word counts."""
    for rank in ship.asked:
        part = parts.get(rank)
        says_none = part is not None and ship.believes_none(part, is_of_fence=is_of_fence)
        lost = rank in gone if part is None else not (part.files or says_none)
        if lost:
            return (
                f"rank {rank} had not said what it has of this save when its pod was lost, and "
                "nobody can tell whether the save is whole without that"
            )
    silent = tuple(rank for rank in ship.asked if rank not in parts)
    return Waiting(silent) if silent else None


def not_its_own(there: ManifestRecord, ship: ShipRecord) -> Dropped:
    """Another save was committed under the ship's number. No mark: that would be on the other."""
    return Dropped(
        Reason.CHECKPOINT_TORN,
        f"{ship.name}: its number was given to {there.name}, so it is not committed",
    )


def merge(parts: Sequence[PartRecord]) -> list[FileRecord]:
    """The files of all parts: the same bytes once and for all, other bytes for each rank alone."""
    by_path: dict[str, list[tuple[int, FileRecord]]] = {}
    for part in parts:
        for file in part.files:
            by_path.setdefault(file.path, []).append((part.rank, file))
    merged: list[FileRecord] = []
    for _, found in sorted(by_path.items()):
        if len({(file.size, file.sha256) for _, file in found}) == 1:
            merged.append(found[0][1])
        else:
            merged += [file.model_copy(update={"ranks": [rank]}) for rank, file in found]
    return merged


def _facts(ship: ShipRecord, parts: Mapping[int, PartRecord]) -> SaveFacts:
    """What the ranks know together: the lowest rank that knows a thing says it."""
    told = [part.save for _, part in sorted(parts.items()) if part.files and part.save is not None]
    known = labelled(told) if told else SaveFacts(root_key=ship.root_key, layout=ship.layout)
    states = [each.full_state for each in told if each.full_state is not None]
    return SaveFacts(
        root_key=ship.root_key,
        layout=ship.layout,
        step=known.step if ship.step is None else ship.step,
        epoch=known.epoch if ship.epoch is None else ship.epoch,
        loss=known.loss,
        # Ranks that hold only a random state know of no optimizer: one that has it decides.
        full_state=any(states) if states else None,
        status="Verified" if any(each.status == "Verified" for each in told) else "Settled",
        gates=[gate for each in told[:1] for gate in each.gates],
        facts={**facts_of_parts(told), **_unit(known)},
    )


def _unit(known: SaveFacts) -> dict[str, object]:
    return {"unit": known.facts["unit"]} if "unit" in known.facts else {}


def _part_files(part: PartRecord) -> PartFiles:
    return PartFiles(
        rank=part.rank,
        files={file.path: file.size for file in part.files},
        facts=part.save.facts if part.save else {},
    )


def _drop(
    context: Context, save: SaveId, fence: int, reason: Reason, message: str
) -> Dropped | FenceLost:
    if overtaken := lost_to(context, fence):
        return overtaken
    mark(context, save, kind=MarkKind.DROPPED, reason=reason, message=message, fence=fence)
    return Dropped(reason, message)
