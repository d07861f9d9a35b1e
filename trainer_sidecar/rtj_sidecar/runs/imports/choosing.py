"""Which save of a place that we did not write is its newest, and which come after it. Pure.

As for a directory never seen before: full saves by global step, or by epoch and then step; what
cannot be ordered is not guessed at. A manifest adds what it states, and its pointer decides where
nothing else can.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rtj_sidecar.checkpoints.beginning import Mixed, newest_of
from rtj_sidecar.checkpoints.layouts.grouping import parent_of
from rtj_sidecar.checkpoints.types import FoundSave, Snapshot
from rtj_sidecar.runs.imports.playbook import Playbook, Stated, resolved

_NAMES = 5


@dataclass(frozen=True, slots=True)
class Passed:
    """A save that was there or named, and why it is not the one."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


@dataclass(frozen=True, slots=True)
class Order:
    """`saves`: to be tried one after the other, newest first. `problem`: why nobody can say."""

    saves: tuple[FoundSave, ...] = ()
    passed: tuple[Passed, ...] = ()
    problem: str | None = None


def in_order(saves: Sequence[FoundSave], *, place: str, latest: str | None = None) -> Order:
    """`latest`: root key of the save that the place's own manifest calls its newest valid one."""
    weights = [save for save in saves if save.full_state is False]
    full = [save for save in saves if save.full_state is not False]
    passed = [Passed(save.root_key, "it holds weights only") for save in weights]
    if not full:
        if not saves:
            return Order(problem=f"{place} holds no checkpoint of a known layout")
        return Order(
            passed=tuple(passed),
            problem=f"{place} holds weights only ({_some(weights)}), no optimizer's state: load "
            "them with the trainer's own option and start anew",
        )
    if len(full) == 1:
        return Order(tuple(full), tuple(passed))
    told = [save for save in full if save.step is not None or save.epoch is not None]
    passed += [
        Passed(save.root_key, "it states neither step nor epoch")
        for save in full
        if save not in told and save.root_key != latest
    ]
    by_pointer = [save for save in full if save.root_key == latest]
    ordered: list[FoundSave] = []
    left = sorted(told, key=lambda save: save.reused_path)  # of equals a numbered one leads
    while left:
        newest = newest_of(left)
        rival = _rival(newest, left)
        if isinstance(newest, Mixed) or newest is None or rival is not None:
            break
        ordered.append(newest)
        left.remove(newest)
    if ordered:
        return Order(tuple(ordered), tuple(passed))
    if by_pointer:
        return Order(tuple(by_pointer), tuple(passed))
    return Order(passed=tuple(passed), problem=_ambiguous(full, told, place))


def _rival(newest: FoundSave | Mixed | None, saves: Sequence[FoundSave]) -> FoundSave | None:
    """Another save at the same position that may as well be the one; never a `best.pt` that rode
    along with a numbered save of its directory."""
    if isinstance(newest, Mixed) or newest is None:
        return None
    for other in saves:
        same = (other.step, other.epoch) == (newest.step, newest.epoch)
        if other is newest or not same:
            continue
        beside = parent_of(other.root_key) == parent_of(newest.root_key)
        if not (beside and other.reused_path):
            return other
    return None


def _ambiguous(full: Sequence[FoundSave], told: Sequence[FoundSave], place: str) -> str:
    found = newest_of(told)
    if isinstance(found, Mixed):
        one, other = found.one.root_key, found.other.root_key
        why = (
            f"nobody can tell whether {one} or {other} is the newer one: their numbers count "
            "different things"
        )
    elif found is not None and (rival := _rival(found, told)) is not None:
        why = f"{found.root_key} and {rival.root_key} are at the same position"
    else:
        why = f"none of {_some(full)} states a step or an epoch"
    return f"{place}: {why}. Name the one to begin from: {place}/{full[-1].root_key}"


@dataclass(frozen=True, slots=True)
class Listed:
    """What a manifest makes of a place."""

    saves: tuple[FoundSave, ...]
    passed: tuple[Passed, ...]
    latest: str | None


def by_playbook(look: Snapshot, playbook: Playbook, *, place: str) -> Listed:
    """The saves that the manifest names and does not call invalid, with what it states of them."""
    present = everything(look)
    owner = {entry.path: save for save in look.saves for entry in save.all_files}
    roots = {save.root_key: save for save in look.saves}
    saves: dict[str, FoundSave] = {}
    passed: list[Passed] = []
    for stated in playbook.entries:
        where = resolved(stated.path, base=place, present=present)
        found = None if where is None else _save_at(where, roots=roots, owner=owner)
        if stated.is_valid is False:
            name = found.root_key if found is not None else stated.path
            passed.append(Passed(name, "the manifest says that it is not valid"))
            saves.pop(name, None)
            continue
        if where is None:
            passed.append(Passed(stated.path, "the manifest names it and it is not there"))
            continue
        if found is None:
            passed.append(Passed(stated.path, "it is no checkpoint of a known layout"))
            continue
        forbidden = any(found.root_key == each.name for each in passed)
        if not forbidden:
            saves[found.root_key] = with_stated(found, stated)
    latest = None
    if playbook.latest is not None:
        where = resolved(playbook.latest, base=place, present=present)
        found = None if where is None else _save_at(where, roots=roots, owner=owner)
        latest = None if found is None else found.root_key
    return Listed(tuple(saves.values()), tuple(passed), latest)


def everything(look: Snapshot) -> frozenset[str]:
    """Every file and every directory of it."""
    paths = {entry.path for entry in look.files}
    for path in tuple(paths):
        while "/" in path:
            path = path.rpartition("/")[0]
            paths.add(path)
    return frozenset(paths)


def with_stated(save: FoundSave, stated: Stated) -> FoundSave:
    """What the content does not say. Where the two disagree, the content wins."""
    unit = save.facts.get("unit")
    unknown = save.step is None or unit == "number"
    facts = dict(save.facts)
    if unknown and stated.step is not None:
        facts["unit"] = "step"
    loss = save.loss
    if stated.loss is not None:
        loss = stated.loss if loss is None else loss
    return replace(
        save,
        step=stated.step if unknown and stated.step is not None else save.step,
        epoch=stated.epoch if save.epoch is None else save.epoch,
        loss=loss,
        facts=facts,
    )


def _save_at(
    path: str, *, roots: Mapping[str, FoundSave], owner: Mapping[str, FoundSave]
) -> FoundSave | None:
    """By its root, one of its files, or the directory that holds nothing but it."""
    if (found := roots.get(path) or owner.get(path)) is not None:
        return found
    inside = [save for root, save in roots.items() if root.startswith(f"{path}/")]
    return inside[0] if len(inside) == 1 else None


def _some(saves: Collection[FoundSave]) -> str:
    names = [save.root_key for save in saves]
    return ", ".join(names[:_NAMES]) + (", …" if len(names) > _NAMES else "")
