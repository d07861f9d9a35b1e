"""DLRover's flash checkpoints: any other layout below a directory with `dlrover_latest.txt`.

The agent writes each shard to its final place (or to the stage directory) and a done file for it;
when all are done it writes the step into the tracker and removes the done files. A save that the
tracker never reached, or whose done files are still there, was not committed. The FSDP saver writes
the tracker before other shards are done, so the inner layout's rules count as well. The tracker is
written in place: a disk that was full, or a kill in between, leaves one without a step in it, which
says nothing of any save; then the listing, the done files and the inner layout's rules decide.
Names: dlrover/python/elastic_agent/torch/ckpt_saver.py, 0.6.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Layout, Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.layouts.guide import Guide
from rtj_sidecar.checkpoints.layouts.guides import dlrover as guides
from rtj_sidecar.checkpoints.layouts.stated import POINTERS, text_pointer
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
    Reason,
)

TRACKER = "dlrover_latest.txt"
STAGE = "._dlrover_ckpt_stage"
_UNREAD = "tracker_without_step"


@dataclass(frozen=True, slots=True)
class DlroverLayout:
    """`layout: dlrover`. `inner`: the layouts whose saves DLRover may have written."""

    inner: tuple[Layout, ...]
    name: str = "dlrover"
    guides: tuple[Guide, ...] = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        saves: list[FoundSave] = []
        for home in sorted(_homes(listing.files)):
            prefix = "" if home == "." else f"{home}/"
            stage = f"{prefix}{STAGE}/"
            below = [entry for entry in listing.files if entry.path.startswith(prefix)]
            staged = [entry for entry in below if entry.path.startswith(stage)]
            left = tuple(e for e in below if e not in staged and e.path != f"{prefix}{TRACKER}")
            tracker = _tracker(below, prefix, reader)
            for layout in self.inner:
                found = layout.recognise(listing=Listing(left, listing.links), reader=reader)
                taken = {entry.path for save in found for entry in save.all_files}
                left = tuple(entry for entry in left if entry.path not in taken)
                saves += [_wrapped(save, prefix, tracker, staged) for save in found]
            saves += _in_stage(staged, stage, saves)
        return tuple(saves)

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        marker = _marker_gate(save)
        layout = self._inner_of(save.facts.get("inner"))
        if marker.passed is False or layout is None:
            why = "not looked at: an earlier gate failed"
            return marker, GateResult(Gate.CONTAINER, None, why), GateResult(Gate.SET, None, why)
        own = [entry for entry in save.files if f"/{STAGE}/" not in f"/{entry.path}"]
        seen = replace(save, files=tuple(own), layout=layout.name)
        gates = layout.gates(save=seen, reader=reader, expect=expect)
        first = next(gate for gate in gates if gate.name is Gate.MARKER)
        # A tracker that says nothing leaves the word to the inner layout's own marker.
        inner_says = first.passed is False or (marker.passed is None and first.passed)
        said = first if inner_says else marker
        return (said, *(g for g in gates if g is not first))

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        for part in parts:
            if (layout := self._inner_of(part.facts.get("inner"))) is not None:
                return layout.union_gate(parts=parts, expect=expect)
        return common.union_by_history(parts, expect=expect)

    def _inner_of(self, name: object) -> Layout | None:
        return next((layout for layout in self.inner if layout.name == name), None)


def _homes(files: Sequence[FileEntry]) -> set[str]:
    """Directories with a tracker or a stage directory in them."""
    homes = {parent_of(entry.path) for entry in files if name_of(entry.path) == TRACKER}
    for entry in files:
        parts = entry.path.split("/")
        if STAGE in parts[:-1]:
            homes.add("/".join(parts[: parts.index(STAGE)]) or ".")
    return homes


@dataclass(frozen=True, slots=True)
class _Tracker:
    """`step` None: there is no tracker, or (`is_there`) one without a step in it."""

    is_there: bool
    step: int | None = None


def _tracker(below: Sequence[FileEntry], prefix: str, reader: Reader) -> _Tracker:
    entry = next((e for e in below if e.path == f"{prefix}{TRACKER}"), None)
    if entry is None:
        return _Tracker(is_there=False)
    try:
        text = reader.small(entry, limit=64).decode("ascii").strip()
    except (OSError, UnsafePathError, UnicodeDecodeError):
        text = ""
    return _Tracker(is_there=True, step=int(text[:18]) if text.isdecimal() else None)


def _wrapped(
    save: FoundSave, prefix: str, tracker: _Tracker, staged: Sequence[FileEntry]
) -> FoundSave:
    done_prefix = f"{prefix}{STAGE}/{save.step}.done/"
    done = tuple(entry for entry in staged if entry.path.startswith(done_prefix))
    told = save.facts.get(POINTERS)
    facts = {**save.facts, "inner": save.layout, "tracker": tracker.step, "unit": "step"}
    facts["done"] = len(done)
    if tracker.is_there and tracker.step is None:
        facts[_UNREAD] = True
    pointer = text_pointer(f"{prefix}{TRACKER}", str(save.step))
    facts[POINTERS] = [*(told if isinstance(told, list) else ()), pointer]
    files = tuple(sorted((*save.files, *done), key=lambda entry: entry.path))
    return replace(save, layout="dlrover", files=files, facts=facts)


def _in_stage(
    staged: Sequence[FileEntry], stage: str, saves: Sequence[FoundSave]
) -> list[FoundSave]:
    """Saves that never left the stage directory: known as torn, so that nobody takes them."""
    steps: dict[str, list[FileEntry]] = {}
    for entry in staged:
        step, slash, _ = entry.path.removeprefix(stage).partition("/")
        if slash and step.isdecimal():
            steps.setdefault(step, []).append(entry)
    return [
        FoundSave(
            root_key=f"{stage}{step}",
            layout="dlrover",
            files=tuple(found),
            step=int(step[:18]),
            facts={"unit": "step", "staged": True},
        )
        for step, found in sorted(steps.items())
    ]


def _marker_gate(save: FoundSave) -> GateResult:
    if save.facts.get("staged"):
        detail = f"{save.root_key} never left the stage directory: it was not committed"
        return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
    if save.facts.get("done"):
        detail = f"{save.root_key}: {save.facts['done']} done files are there, it is not committed"
        return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
    if save.facts.get(_UNREAD):
        detail = f"{TRACKER} has no step in it: its last write did not finish, so it proves nothing"
        return GateResult(Gate.MARKER, None, detail)
    tracker = save.facts.get("tracker")
    if isinstance(tracker, int) and save.step is not None and tracker >= save.step:
        return GateResult(Gate.MARKER, True, f"{TRACKER} says {tracker}")
    detail = f"{save.root_key}: {TRACKER} says {tracker}, this step was not committed"
    return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
