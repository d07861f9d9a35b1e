"""Which saves of a run are kept, and why each: the rule of retention. Pure.

A save is kept for the first reason that holds; what has none goes. Never below one verified save
of the line, never what is in use, pinned, an attempt's beginning or needed to restore a kept one.
Ages are positions in training (steps, or epochs where steps restart), never a clock: so a run that
slept for a week loses nothing by it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rtj_api.wire import SidecarConfig

from rtj_sidecar.checkpoints.types import Status
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.lineage import lineage
from rtj_sidecar.runs.records import ManifestRecord


@dataclass(frozen=True, slots=True)
class Best:
    """`metric`: "loss", or a name in a save's `facts["metrics"]`."""

    metric: str = "loss"
    highest: bool = False
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What to keep. `last` None: everything is kept. `every`: steps. `thin`: ever fewer of the
    older ones, so that good points survive for a roll-back. `archive_after`: seconds since the
    commit after which a kept save outside `last` may go to a slower class of the store."""

    last: int | None = None
    every: int | None = None
    best: Best | None = None
    thin: bool = False
    archive_after: float | None = None
    archive_class: str = "GLACIER"


KEPT_IN_DIRECTORY = 5  # verified saves, where they lie on the volume that the trainer writes to


def keep_of(config: SidecarConfig) -> Keep:
    """As the job's spec says it, or as it is without a word."""
    rules, last = config.keep, config.keep_last
    if last is None and config.keeps_in_directory:
        last = KEPT_IN_DIRECTORY  # the trainer's own rotation frees nothing that is linked
    best = None
    if rules.best_metric is not None:
        best = Best(rules.best_metric, highest=rules.best_highest, count=rules.best_count)
    return Keep(
        last=last,
        every=rules.every,
        best=best,
        thin=rules.thin,
        archive_after=rules.archive_after_seconds,
        archive_class=rules.archive_class,
    )


class Why(StrEnum):
    """Why a save is kept."""

    LAST = "last"
    IN_USE = "in use"
    PINNED = "pinned"
    PARENT = "an attempt began from it"
    EVERY = "every"
    BEST = "best"
    THINNED = "thinned"
    CARRIED = "a kept save brings back a file of it"
    ALL = "all are kept"


def kept(history: History, *, keep: Keep, in_use: Collection[str]) -> dict[SaveId, Why | None]:
    """Every valid save of the lineage, newest first, with why it is kept; None: it goes."""
    saves = [
        save
        for save in lineage(history).saves
        if save in history.manifests and history.condemned(save) is None
    ]
    if keep.last is None:
        return dict.fromkeys(saves, Why.ALL)
    why: dict[SaveId, Why | None] = dict.fromkeys(saves)
    manifests = history.manifests
    parents = {record.parent.name for record in history.fences if record.parent is not None}
    for save in window(history, saves, last=keep.last):
        why[save] = Why.LAST
    for save in saves:
        if why[save] is not None:
            continue
        if manifests[save].name in in_use:
            why[save] = Why.IN_USE
        elif history.pinned(save):
            why[save] = Why.PINNED
        elif manifests[save].name in parents:
            why[save] = Why.PARENT
    # Only these are points that somebody could go back to.
    points = [save for save in reversed(saves) if is_point(manifests[save])]
    for save in _each(points, manifests, every=keep.every):
        why[save] = why[save] or Why.EVERY
    for save in _best(points, manifests, best=keep.best):
        why[save] = why[save] or Why.BEST
    if keep.thin:
        fixed = {save for save in points if why[save] is not None}
        for save in thinned(points, _positions(points, manifests), fixed=fixed):
            why[save] = why[save] or Why.THINNED
    carried: set[str] = set()
    for save in saves:
        if why[save] is None and manifests[save].name in carried:
            why[save] = Why.CARRIED
        if why[save] is not None:
            carried |= carried_by(manifests[save])
    return why


def to_mark(history: History, *, keep: Keep, in_use: Collection[str]) -> tuple[SaveId, ...]:
    """The saves that retention no longer keeps, oldest first."""
    found = kept(history, keep=keep, in_use=in_use)
    return tuple(reversed([save for save, why in found.items() if why is None]))


def to_archive(
    history: History, *, keep: Keep, in_use: Collection[str], now: float
) -> tuple[SaveId, ...]:
    """Kept saves that are old enough for a slower class and not there yet, oldest first.

    Never what is in the window of the newest, in use, pinned or needed by a save of it."""
    if keep.archive_after is None:
        return ()
    why = kept(history, keep=keep, in_use=in_use)
    near = set(window(history, list(why), last=keep.last or 1))
    needed = {name for save in near for name in carried_by(history.manifests[save])}
    newest_parent = next(
        (record.parent.name for record in reversed(history.fences) if record.parent is not None),
        None,
    )
    apart = set(in_use) | needed | {newest_parent}
    return tuple(
        save
        for save, reason in reversed(list(why.items()))
        if reason is not None
        and save not in near
        and not history.pinned(save)
        and history.manifests[save].name not in apart
        and not history.archived(save)
        and now - history.manifests[save].committed_at >= keep.archive_after
    )


def is_point(manifest: ManifestRecord) -> bool:
    """Proved, and with its full state."""
    return manifest.full_state is not False and manifest.status == Status.VERIFIED


def window(history: History, saves: Sequence[SaveId], *, last: int) -> list[SaveId]:
    """The newest saves down to the `last`-th verified full one; all where there are fewer.
    `saves`: newest first."""
    found: list[SaveId] = []
    count = 0
    for save in saves:
        if count >= max(last, 1):
            break
        found.append(save)
        count += is_point(history.manifests[save])
    return found


def thinned(
    points: Sequence[SaveId], at: Sequence[float] | None, *, fixed: Collection[SaveId]
) -> list[SaveId]:
    """Which points survive so that their gaps grow with their age; `fixed` ones are kept anyway.

    `points` oldest first, `at` their positions (None: they have no order, nothing survives by
    this). One goes where the gap that it leaves is at most as wide as the distance from there to
    the newest: so about two are left for each doubling of the age, the oldest among them, and
    what was left stays left when newer ones come.
    """
    if at is None or not points:
        return []
    head = at[-1]
    left = [0]
    for here in range(1, len(points) - 1):
        gap = at[here + 1] - at[left[-1]]
        if points[here] in fixed or gap > head - at[here + 1]:
            left.append(here)
    if len(points) > 1:
        left.append(len(points) - 1)
    return [points[here] for here in left]


def carried_by(manifest: ManifestRecord) -> set[str]:
    """Names of the older saves of which a restore of this one brings back a file."""
    return {
        keys.save_name(SaveId(told["fence"], told["n"]), told["step"])
        for told in manifest.facts.get("carried") or ()
    }


def metric_of(manifest: ManifestRecord, metric: str) -> float | None:
    """The save's own value of it; None where it tells none that is finite."""
    told = manifest.facts.get("metrics")
    value = told.get(metric) if isinstance(told, Mapping) else None
    if value is None and metric == "loss":
        value = manifest.loss
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _each(
    points: Sequence[SaveId], manifests: Mapping[SaveId, ManifestRecord], *, every: int | None
) -> list[SaveId]:
    """The first point at or after each multiple of `every` steps."""
    if every is None:
        return []
    first: dict[int, SaveId] = {}
    for save in points:
        step = manifests[save].step
        if step is not None and step >= every:
            first.setdefault(step // every, save)
    return list(first.values())


def _best(
    points: Sequence[SaveId], manifests: Mapping[SaveId, ManifestRecord], *, best: Best | None
) -> list[SaveId]:
    """Of equal ones the older: what was the best stays so until it is beaten."""
    if best is None:
        return []
    told = [
        (value, save)
        for save in points
        if (value := metric_of(manifests[save], best.metric)) is not None
    ]
    sign = -1 if best.highest else 1
    told.sort(key=lambda each: sign * each[0])  # stable: equal ones stay oldest first
    return [save for _, save in told[: best.count]]


def _positions(
    points: Sequence[SaveId], manifests: Mapping[SaveId, ManifestRecord]
) -> list[float] | None:
    """How far training was at each: global steps, or epochs where steps restart with each."""
    for of in ("step", "epoch"):
        told = [getattr(manifests[save], of) for save in points]
        if all(value is not None for value in told) and told == sorted(told):
            return [float(value) for value in told]
    return None
