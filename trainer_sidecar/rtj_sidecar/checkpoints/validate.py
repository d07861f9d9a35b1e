"""Turns the four gates into a verdict on each save. Reads through the Reader; never writes.

Verified: at least one of marker, container and set applies and all that apply pass. Settled: none
applies. A save that still changes is judged no further, so a poll costs nothing while it grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rtj_sidecar.checkpoints.layouts.base import Layout
from rtj_sidecar.checkpoints.layouts.common import family_of, name_set
from rtj_sidecar.checkpoints.layouts.grouping import parent_of
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.quiescence import Observations, Writers, is_closed, quiet_gate
from rtj_sidecar.checkpoints.reader import Reader, unreadable
from rtj_sidecar.checkpoints.scan import lost_files
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    Reason,
    Snapshot,
    Status,
    Verdict,
)
from rtj_sidecar.checkpoints.vanished import proves_itself

_EARLIER = "\0earlier"
"""Behind the root key in the memo: judged as a save from before this attempt."""


@dataclass(frozen=True, slots=True)
class Patience:
    """When something counts as quiet. Times in seconds of the caller's monotonic clock."""

    now: float
    settle_seconds: float = 1.0
    hurry_seconds: float | None = None
    """Enough for a file that proves itself and that nobody has open; None: no hurry."""

    def settle_for(self, save: FoundSave) -> float:
        hurry = self.hurry_seconds
        return hurry if hurry is not None and proves_itself(save) else self.settle_seconds


@dataclass(frozen=True, slots=True)
class _Known:
    """A verdict and all that it depends on."""

    files: tuple[FileEntry, ...]
    depends: tuple[object, ...]
    verdict: Verdict


def judge_all(
    *,
    snapshot: Snapshot,
    reader: Reader,
    layouts: Sequence[Layout],
    observations: Observations,
    patience: Patience,
    writers: Writers,
    expect: Expectations,
    is_earlier: Callable[[FoundSave], bool] = lambda _: False,
) -> tuple[tuple[FoundSave, Verdict], ...]:
    """A verdict for each save of the snapshot, in its order. Unchanged files are not read again.

    The name sets in `expect` (from before this directory's memory) are used for a save that has
    fewer than two earlier ones beside it. `is_earlier`: made before this attempt, so its number of
    processes is its own; asked only of saves that the attempt's number condemns.
    """
    by_name = {layout.name: layout for layout in layouts}
    judged: list[tuple[FoundSave, Verdict]] = []
    history: dict[tuple[str, str, bool], tuple[frozenset[str], ...]] = {}
    quiets = [
        quiet_gate(
            save=save,
            observations=observations,
            now=patience.now,
            settle_seconds=patience.settle_for(save),
            writers=writers,
        )
        for save in snapshot.saves
    ]
    busy = {
        parent_of(save.root_key): quiet
        for save, quiet in zip(snapshot.saves, quiets, strict=True)
        if save.reused_path and not quiet.passed
    }
    for at, save in enumerate(snapshot.saves):
        family = family_of(save)
        sets = (*expect.name_sets, *history.get(family, ()))[-2:] if family else ()
        quiet = quiets[at]
        followed = any(family == family_of(later) for later in snapshot.saves[at + 1 :])
        if family and not followed and patience.settle_for(save) == patience.settle_seconds:
            # `last.ckpt` is written after the numbered file: the newest save waits for its alias.
            quiet = busy.get(parent_of(save.root_key), quiet) if quiet.passed else quiet
        judge_it = partial(
            judge,
            save=save,
            layout=by_name[save.layout],
            reader=reader,
            quiet=quiet,
            closed=is_closed(save=save, writers=writers)
            or _followed(save, snapshot.saves[at + 1 :]),
            shrinking=save.root_key in snapshot.shrinking or _is_remainder(save, reader),
        )
        expected = replace(expect, name_sets=sets)
        verdict = judge_it(expect=expected)
        lacks = (verdict.status, verdict.reason) == (Status.TORN, Reason.FILES_MISSING)
        if lacks and expected.demanded is not None and is_earlier(save):
            verdict = judge_it(expect=replace(expected, earlier=True))
        if family and _container_ok(verdict):
            history[family] = (*history.get(family, ()), name_set(save))[-2:]
        judged.append((save, verdict))
    present = {save.root_key for save in snapshot.saves}
    for key in [key for key in reader.memo if key.removesuffix(_EARLIER) not in present]:
        del reader.memo[key]
    return tuple(judged)


def judge(
    *,
    save: FoundSave,
    layout: Layout,
    reader: Reader,
    expect: Expectations,
    quiet: GateResult,
    closed: bool,
    shrinking: bool = False,
) -> Verdict:
    """The verdict on one save. Never raises for what it finds on the disk."""
    if shrinking:
        detail = f"{save.root_key} loses files and gains none: it is being rotated away"
        return _verdict(Status.UNKNOWN, (quiet,), Reason.BEING_REMOVED, detail, save)
    if not quiet.passed:
        return _verdict(Status.WRITING, (quiet,), quiet.reason, quiet.detail, save)
    # A poll of an unchanged directory must not walk through every file of every save again.
    depends = (save.aliases, save.step, save.facts, layout.name, expect, closed)
    key = save.root_key + (_EARLIER if expect.earlier else "")
    known = reader.memo.get(key)
    if isinstance(known, _Known) and (known.files, known.depends) == (save.files, depends):
        return known.verdict
    verdict = _by_gates(save, layout, reader, expect, quiet, closed)
    if verdict.status is not Status.UNKNOWN:
        reader.memo[key] = _Known(save.files, depends, verdict)
    return verdict


def _by_gates(
    save: FoundSave,
    layout: Layout,
    reader: Reader,
    expect: Expectations,
    quiet: GateResult,
    closed: bool,
) -> Verdict:
    try:
        gates = (*layout.gates(save=save, reader=reader, expect=expect), quiet)
    except (OSError, UnsafePathError) as error:
        reason, message = unreadable(error)
        return _verdict(Status.UNKNOWN, (quiet,), reason, message, save)
    for gate in gates:
        if gate.passed is False:
            return _verdict(Status.TORN, gates, gate.reason, gate.detail, save)
    if any(gate.passed for gate in gates if gate.name is not Gate.QUIET):
        message = "; ".join(gate.detail for gate in gates if gate.passed)
        return _verdict(Status.VERIFIED, gates, Reason.OK, message, save, candidate=True)
    if closed:
        message = "nothing in it can prove itself; it is closed and does not change"
        return _verdict(Status.SETTLED, gates, Reason.OK, message, save, candidate=True)
    message = "nothing in it can prove itself, and it may still be open: waiting for its writer"
    return _verdict(Status.SETTLED, gates, Reason.NOT_CLOSED, message, save)


def _verdict(
    status: Status,
    gates: tuple[GateResult, ...],
    reason: Reason,
    message: str,
    save: FoundSave,
    *,
    candidate: bool = False,
) -> Verdict:
    facts = {**save.facts, "gates": {gate.name.value: gate.passed for gate in gates}}
    return Verdict(status, gates, reason, message, candidate, facts)


def _is_remainder(save: FoundSave, reader: Reader) -> bool:
    """Whether it is what a rotation left of a save that was whole: no save of its own. A save that
    loses a file before it was ever whole (a marker that says "unfinished") is just finishing."""
    judged = (reader.memo.get(save.root_key + suffix) for suffix in ("", _EARLIER))
    return any(
        isinstance(known, _Known)
        and known.verdict.candidate
        and lost_files(before=known.files, now=save.files)
        for known in judged
    )


def _followed(save: FoundSave, later: Sequence[FoundSave]) -> bool:
    known = save.step is not None or save.epoch is not None
    return known and any(other.layout == save.layout for other in later)


def _container_ok(verdict: Verdict) -> bool:
    checked = [gate for gate in verdict.gates if gate.name is Gate.CONTAINER]
    return bool(checked) and checked[0].passed is not False
