"""NeMo 1 and 2: `<name>--<metric>-step=S-consumed_samples=C[-last]`, a directory or `.ckpt` files.

NeMo 2: a directory with `weights/` (Megatron's distributed format) and `context/`. NeMo 1: such a
directory without the two, or a `.ckpt` file, one for each model-parallel rank in
`tp_rank_00_pp_rank_001/`. The sibling `<stem>-unfinished` exists while a save is written and while
it is removed; it counts as a file of the save, so its going makes it another generation. Names:
nemo/utils/callbacks/nemo_model_checkpoint.py, nemo/lightning/pytorch/callbacks/model_checkpoint.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from rtj_sidecar.checkpoints.formats.facts import number
from rtj_sidecar.checkpoints.layouts import common, nested
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.dcp_facts import read_facts
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.layouts.guides import nemo as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary, numbers_in
from rtj_sidecar.checkpoints.layouts.stated import POINTERS, link_pointer
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
    Reason,
)

UNFINISHED = "-unfinished"
_NAME = re.compile(r"consumed_samples=")
_SAMPLES = re.compile(r"consumed_samples=(\d+)")
_LOSS = re.compile(r"(?:val_|train_|reduced_train_)?loss=(-?\d+\.\d+)")
_INSIDE = {"common.pt", "metadata.json", ".metadata", "__0_0.distcp"}
_RANK_DIRECTORY = re.compile(r"^(?:tp_rank_\d+_pp_rank_\d+|mp_rank_\d+)$")
_SUFFIX = re.compile(r"\.(?:ckpt|nemo)$")


class NemoLayout:
    """`layout: nemo`."""

    name = "nemo"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        paths = [entry.path for entry in listing.files]
        stems = _stems(paths)
        by_stem: dict[str, list[FileEntry]] = {}
        for entry in listing.files:
            if not is_temporary(entry.path) and (stem := _home(entry.path, stems)) is not None:
                by_stem.setdefault(stem, []).append(entry)
        return tuple(
            _save(stem, found, reader)
            for stem, found in sorted(by_stem.items())
            if any(not entry.path.endswith(UNFINISHED) for entry in found)
        )

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        files = {entry.path: entry for entry in save.files}
        if left := [path for path in files if path.endswith(UNFINISHED)]:
            detail = f"{left[0]} is there: the save did not finish, or it is being removed"
            why = nested.NOT_LOOKED_AT
            return (
                common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail),
                GateResult(Gate.CONTAINER, None, why),
                GateResult(Gate.SET, None, why),
            )
        marker = GateResult(Gate.MARKER, True, f"no {UNFINISHED} beside it")
        if expect.whole and (gap := _metadata_missing(files)):
            marker = common.failed(Gate.MARKER, Reason.MARKER_MISSING, gap)
        if marker.passed is False:
            why = nested.NOT_LOOKED_AT
            return marker, GateResult(Gate.CONTAINER, None, why), GateResult(Gate.SET, None, why)
        inner, container, whole = nested.gates(save, reader=reader, expect=expect)
        if inner is not None and inner.passed is False:
            return inner, container, GateResult(Gate.SET, None, nested.NOT_LOOKED_AT)
        if whole is not None and whole.passed is False:
            return marker, container, whole
        history = common.set_gate(save, expect=expect)
        if history.passed is False or whole is None:
            return marker, container, history
        return marker, container, whole

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = common.union_of(parts)
        if left := [path for path in union if path.endswith(UNFINISHED)]:
            detail = f"{left[0]} is there: the save did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        if gap := _metadata_missing(union):
            return common.failed(Gate.SET, Reason.MARKER_MISSING, gap)
        return nested.union_gate(parts) or common.union_by_history(parts, expect=expect)


def _stems(paths: Collection[str]) -> frozenset[str]:
    """What NeMo calls the save: the path without `.ckpt`, `-EMA` and a rank's directory."""
    stems = {path.removesuffix(UNFINISHED) for path in paths if path.endswith(UNFINISHED)}
    directories: dict[str, set[str]] = {}
    for path in paths:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            directories.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
        if _NAME.search(name_of(path)) and _SUFFIX.search(path):
            stems.add(_stem_of_file(path))
    for directory, names in directories.items():
        named = _NAME.search(name_of(directory)) is not None
        inside = directories.get(f"{directory}/weights", set())
        second = {"weights", "context"} <= names and bool(inside & _INSIDE)
        if (named and directory not in stems) or second:
            stems.add(directory.removesuffix("-EMA") if named else directory)
    return frozenset(stem for stem in stems if stem and not stem.endswith("/"))


def _stem_of_file(path: str) -> str:
    """`ckpts/tp_rank_00_pp_rank_001/X-EMA.ckpt` -> `ckpts/X`."""
    directory, name = parent_of(path), _SUFFIX.sub("", name_of(path)).removesuffix("-EMA")
    if _RANK_DIRECTORY.match(name_of(directory)):
        directory = parent_of(directory)
    return name if directory == "." else f"{directory}/{name}"


def _home(path: str, stems: frozenset[str]) -> str | None:
    if path.endswith(UNFINISHED) and path.removesuffix(UNFINISHED) in stems:
        return path.removesuffix(UNFINISHED)
    if _SUFFIX.search(path) and (stem := _stem_of_file(path)) in stems:
        return stem
    parts = path.split("/")
    for depth in range(1, len(parts)):
        above = "/".join(parts[:depth])
        if above in stems or above.removesuffix("-EMA") in stems:
            return above if above in stems else above.removesuffix("-EMA")
    return None


def _save(stem: str, found: list[FileEntry], reader: Reader) -> FoundSave:
    content = [entry for entry in found if not entry.path.endswith(UNFINISHED)]
    directory = any(entry.path.startswith(f"{stem}/") for entry in content)
    name = name_of(stem)
    numbers = numbers_in(name)
    told = read_facts(found, reader)
    facts: dict[str, object] = dict(told.facts)
    full = told.full_state
    step, epoch = numbers.step, numbers.epoch
    if not directory:
        peek = common.peek_of(reader, content[0])
        read: Mapping[str, object] = peek.facts if peek is not None else {}
        has, known = read.get("full_state"), read.get(HAS)
        full = has if isinstance(has, bool) else None
        facts |= {HAS: known} if isinstance(known, dict) else {}
        own = read.get("step")
        step = own if isinstance(own, int) else step
    facts["unit"] = "step" if step is not None else "epoch"
    if samples := _SAMPLES.search(name):
        facts["samples"] = int(samples.group(1)[:18])
    loss = _LOSS.search(name)
    root = stem if directory else min(entry.path for entry in content)
    if not name.endswith(("-last", "end")) and parent_of(root) == parent_of(stem):
        facts[POINTERS] = [_last(root)]
    return FoundSave(
        root_key=root,
        layout=NemoLayout.name,
        files=told.files,
        step=step,
        epoch=epoch,
        loss=number(float(loss.group(1))) if loss else None,
        full_state=full,
        reused_path=not numbers.sure,
        facts=facts,
    )


def _last(root: str) -> dict[str, object]:
    """NeMo resumes by a name that ends with `-last`: a link of that name to this save."""
    suffix = _SUFFIX.search(root)
    tail = suffix.group(0) if suffix else ""
    return link_pointer(f"{root.removesuffix(tail)}-last{tail}", name_of(root))


def _metadata_missing(paths: Collection[str]) -> str | None:
    """`metadata.json` is written last into Megatron's distributed format, which has `common.pt`."""
    for path in sorted(paths):
        if name_of(path) == "common.pt":
            marker = path.removesuffix("common.pt") + "metadata.json"
            if marker not in paths:
                return f"{marker} is missing: the save did not finish"
    return None
