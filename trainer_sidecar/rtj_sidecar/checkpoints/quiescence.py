"""Whether a save still changes: the fourth gate. Pure: time and open files are given.

CLOSE_WRITE repeats or comes after a rename, so "closed once" proves nothing; what counts is that
no file of the save changed for a while and that no process has one open for writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rtj_sidecar.checkpoints.types import FileEntry, FoundSave, Gate, GateResult, Reason, Snapshot

_State = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Observations:
    """Since when (seconds of the caller's monotonic clock) each path has been as it is."""

    since: Mapping[str, tuple[_State, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Writers:
    """What is known of open files. `open_paths`: relative paths that some process has open for
    writing, None where nobody can say. `gone`: every process that could write has ended."""

    open_paths: frozenset[str] | None = None
    gone: bool = False


def observe(*, before: Observations, snapshot: Snapshot, now: float) -> Observations:
    """The observations after another look at time `now`."""
    since = {}
    for entry in snapshot.files:
        state = _state(entry)
        known = before.since.get(entry.path)
        since[entry.path] = known if known and known[0] == state else (state, now)
    return Observations(since)


def quiet_gate(
    *,
    save: FoundSave,
    observations: Observations,
    now: float,
    settle_seconds: float,
    writers: Writers,
) -> GateResult:
    """Passed where no writer has it open and nothing changed for `settle_seconds`.

    Where all writers have ended nothing can change any more and the wait is skipped.
    """
    if writers.gone:
        return GateResult(Gate.QUIET, True, "every writer has ended")
    if (path := _open_file(save, writers.open_paths or frozenset())) is not None:
        detail = f"{path} is open for writing"
        return GateResult(Gate.QUIET, False, detail, Reason.OPEN_WRITER)
    for entry in save.all_files:
        known = observations.since.get(entry.path)
        if known is None or known[0] != _state(entry) or now - known[1] < settle_seconds:
            detail = f"{entry.path} changed less than {settle_seconds:g} s ago"
            return GateResult(Gate.QUIET, False, detail, Reason.NOT_QUIET)
    return GateResult(Gate.QUIET, True, f"nothing changed for {settle_seconds:g} s")


def is_closed(*, save: FoundSave, writers: Writers) -> bool:
    """Whether it is known (not just likely) that no process has a file of it open for writing."""
    if writers.gone:
        return True
    return writers.open_paths is not None and _open_file(save, writers.open_paths) is None


def _open_file(save: FoundSave, open_paths: frozenset[str]) -> str | None:
    own = {entry.path for entry in save.all_files}
    inside = f"{save.root_key}/" if save.root_key not in own | {"."} else None
    for path in sorted(open_paths):
        if path in own or (inside is not None and path.startswith(inside)):
            return path
    return None


def _state(entry: FileEntry) -> _State:
    # Without ctime: our own pins and the trainer's rotation move it without touching a byte.
    return (entry.device, entry.inode, entry.size, entry.mtime_ns)
