"""Which saves can be reached from the newest fence, and in which order they are preferred. Pure.

A chain of manifests, never of names, times or clocks: the newest fence's saves by number, then its
parent and those before it, and so on. A fence without a parent never let a trainer start, so it is
looked through. All else is a branch, reached only by full name: among it what a zombie still wrote
after a newer fence had taken an older parent. A save copied from another run is reached only where
an attempt starts from it, and is the beginning of its line.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rtj_api.reasons import Reason
from rtj_api.wire import Candidate

from rtj_sidecar.checkpoints.resume_state import has_of, merged
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import Parent
from rtj_sidecar.runs.unfit import against, facts_of_parts


class End(StrEnum):
    """Why the chain goes no further."""

    START = "start"  # there is no fence before
    SCRATCH = "scratch"  # an attempt began from nothing, by right
    OTHER_RUN = "other-run"  # an attempt began from another run's save
    BROKEN = "broken"  # a fence or parent that the records do not hold


@dataclass(frozen=True, slots=True)
class Lineage:
    saves: tuple[SaveId, ...]
    """Newest (most preferred) first; committed ones, and ships that may still be."""
    branches: tuple[SaveId, ...]
    """Committed, not deleted, and not reachable."""
    end: End
    fences: tuple[int, ...]
    """The fences of the chain that have a parent, newest first."""


def compare(a: Parent, b: Parent) -> int | None:
    """-1, 0, 1: `a` lies below, at, above `b`; None: they cannot be compared.

    By global step. Where epoch and step disagree, steps restart with each epoch and the epoch
    decides, if that can be told.
    """
    if a.step is None or b.step is None or a.epoch is None or b.epoch is None:
        for left, right in ((a.step, b.step), (a.epoch, b.epoch)):
            if left is not None and right is not None:
                return _sign(left - right)
        return None
    by_step, by_epoch = _sign(a.step - b.step), _sign(a.epoch - b.epoch)
    if by_step == 1 and by_epoch == -1:
        return None
    return by_epoch or by_step


def position(history: History, save: SaveId) -> Parent:
    """The save's name and position; step and epoch None where unknown."""
    if manifest := history.manifests.get(save):
        return Parent(name=manifest.name, step=manifest.step, epoch=manifest.epoch)
    step, epoch, name = None, None, str(save)
    if ship := history.ships.get(save):
        step, epoch, name = ship.step, ship.epoch, ship.name
    for part in history.parts.get(save, {}).values():
        if part.save is not None:
            step = part.save.step if step is None else step
            epoch = part.save.epoch if epoch is None else epoch
    return Parent(name=name, step=step, epoch=epoch)


def lineage(history: History) -> Lineage:
    saves: list[SaveId] = []
    chain: list[int] = []
    # Saves at the same position as what their attempt resumed from come right after that.
    after: dict[SaveId, list[SaveId]] = {}
    end = End.START
    fence: int | None = history.highest or None
    limit: int | None = None

    def emit(save: SaveId) -> None:
        saves.append(save)
        for later in after.pop(save, ()):
            emit(later)

    while fence is not None:
        record = history.fence(fence)
        parent = record.parent if record else None
        own, begins = _down_to_import(history, _saves_of(history, fence, limit), parent, limit)
        if record is not None and parent is None and limit is None and not own:
            fence = history.before(fence)
            continue
        chain.append(fence)
        if begins:
            *newer, first = own
            start = position(history, first)
            equal = [save for save in newer if compare(position(history, save), start) == 0]
            for save in (*(s for s in newer if s not in equal), first, *equal):
                emit(save)
            end = End.OTHER_RUN
            break
        target = None if parent is None or parent.scratch else keys.parse_name(parent.name or "")
        if parent is None or parent.scratch or parent.run is not None or target is None:
            for save in own:
                emit(save)
            if record is not None and parent is None:
                fence, limit = history.before(fence), None
                continue
            if parent is not None and parent.scratch:
                end = End.SCRATCH
            elif parent is not None and parent.run is not None:
                end = End.OTHER_RUN
            else:
                end = End.BROKEN
            break
        for save in own:
            if compare(position(history, save), parent) == 0:
                after.setdefault(target, []).append(save)
            else:
                emit(save)
        if target.fence == fence:
            # A leftover of the attempt before, named under this fence before its attempt chose it.
            for late in after.pop(target, ()):
                emit(late)
            fence, limit = history.before(fence), None
            continue
        if target.fence > fence:
            end = End.BROKEN
            break
        if not _there(history, target):
            for save in after.pop(target, ()):
                emit(save)
        fence, limit = target.fence, target.n
    for late in list(after.values()):
        saves.extend(late)
    reached = set(saves)
    branches = sorted(
        save for save in history.manifests if save not in reached and not history.deleted(save)
    )
    return Lineage(tuple(saves), tuple(branches), end, tuple(chain))


def candidates(history: History) -> dict[SaveId, Candidate]:
    """The lineage as the operator reads it, newest first."""
    return {save: candidate(history, save) for save in lineage(history).saves}


def candidate(history: History, save: SaveId) -> Candidate:
    condemned = history.condemned(save)
    message = condemned.message if condemned else None
    invalid = condemned.reason if condemned else None
    if manifest := history.manifests.get(save):
        return Candidate(
            name=manifest.name,
            step=manifest.step,
            epoch=manifest.epoch,
            loss=manifest.loss,
            bytes=manifest.bytes,
            durable=True,
            full_state=manifest.full_state,
            invalid=invalid,
            invalid_message=message,
            has=has_of(manifest.facts),
            world_size=manifest.world_size,
            layout=manifest.layout,
            needs=manifest.ranks,
            written_at=manifest.committed_at,
        )
    at = position(history, save)
    name = at.name or str(save)
    if keys.manifest_key(save) in history.broken:
        return Candidate(
            name=name, step=at.step, epoch=at.epoch, durable=True, invalid=Reason.RUN_DAMAGED
        )
    ship, parts = history.ships.get(save), history.parts.get(save, {})
    facts = [part.save for part in parts.values() if part.save is not None]
    without = {
        rank
        for rank, part in parts.items()
        if not part.files and (ship is None or ship.believes_none(part))
    }
    writers = {*ship.expected, *ship.asked} if ship is not None else set()
    told = [each.full_state for each in facts if each.full_state is not None]
    unfit = against(facts_of_parts(facts), required=history.required)
    if invalid is None and unfit is not None:
        invalid, message = unfit
    return Candidate(
        name=name,
        step=at.step,
        epoch=at.epoch,
        loss=next((each.loss for each in facts if each.loss is not None), None),
        bytes=sum(entry.size for part in parts.values() for entry in part.files),
        durable=False,
        full_state=any(told) if told else None,
        invalid=invalid,
        invalid_message=message,
        has=merged(has_of(each.facts) for each in facts),
        world_size=ship.world_size if ship else None,
        layout=ship.layout if ship else None,
        needs=sorted((writers | set(parts)) - without),
        written_at=ship.named_at if ship else None,
    )


def ignored(parent: Parent | None, save: Parent) -> str | None:
    """Why this save shows that the trainer did not load what it was given; None where it does not.

    `parent` is what its attempt resumed from. What cannot be compared convicts nobody.
    """
    if parent is None or parent.scratch or compare(save, parent) != -1:
        return None

    def at(where: Parent) -> str:
        return ", ".join(
            f"{word} {value}"
            for word, value in (("epoch", where.epoch), ("step", where.step))
            if value is not None
        )

    return (
        f"the trainer saved {at(save)} although it was given {parent.name} ({at(parent)}): it did "
        "not load the checkpoint. Make it resume (checkpoint.resumeArgs, e.g. "
        '["--resume", "$(RTJ_RESUME_CHECKPOINT)"]), or give it another checkpoint.runID to begin '
        "anew"
    )


def _saves_of(history: History, fence: int, limit: int | None) -> list[SaveId]:
    return sorted(
        (
            save
            for save in history.named
            if save.fence == fence and (limit is None or save.n <= limit) and _there(history, save)
        ),
        key=lambda save: save.n,
        reverse=True,
    )


def _down_to_import(
    history: History, own: list[SaveId], parent: Parent | None, limit: int | None
) -> tuple[list[SaveId], bool]:
    """A fence's saves without copies that no attempt started from; True: the last one begins the
    line, because it came from another run."""
    target = keys.parse_name(parent.name or "") if parent is not None else None
    kept: list[SaveId] = []
    for save in own:
        manifest = history.manifests.get(save)
        if manifest is None or manifest.imported is None:
            kept.append(save)
        elif save == target or save.n == limit:
            return [*kept, save], True
    return kept, False


def _there(history: History, save: SaveId) -> bool:
    """Committed (readable or not) or still able to be."""
    if history.deleted(save):
        return False
    if save in history.manifests or keys.manifest_key(save) in history.broken:
        return True
    return save in history.ships and history.condemned(save) is None


def _sign(difference: int) -> int:
    return (difference > 0) - (difference < 0)
