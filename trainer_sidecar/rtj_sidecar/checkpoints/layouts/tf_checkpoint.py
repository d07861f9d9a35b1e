"""TensorFlow's Checkpoint: `ckpt-N.index`, `ckpt-N.data-0000i-of-0000n`, and the text `checkpoint`.

The index is written last and has a CRC-32C of every tensor, so that the files prove each other.
`tf.train.latest_checkpoint` reads `checkpoint` alone, whose paths may be absolute: it is written
anew with the restored save's relative one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rtj_sidecar.checkpoints.formats import tfbundle
from rtj_sidecar.checkpoints.formats.base import FileCheck, Window
from rtj_sidecar.checkpoints.formats.facts import EPOCH_KEYS, STEP_KEYS
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.layouts.guides import tf_checkpoint as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary, numbers_in
from rtj_sidecar.checkpoints.layouts.stated import POINTERS, beside, text_pointer
from rtj_sidecar.checkpoints.layouts.torchfile import labels
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS, parts_named
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
    Reason,
)

_DATA = re.compile(r"^(.+)\.data-(\d{5})-of-(\d{5})$")
_LEFT = re.compile(r"^(.+)_temp/part-[^/]*\.tempstate[^/]*$")
_INDEX = ".index"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_ITERATIONS = ("_iterations", "iterations", "iter")
_QUESTION = "tf-index-value"


class TfCheckpointLayout:
    """`layout: tf-checkpoint`."""

    name = "tf-checkpoint"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        groups: dict[str, list[FileEntry]] = {}
        indexes: dict[str, FileEntry] = {}
        for entry in listing.files:
            if data := _DATA.match(entry.path) or _LEFT.match(entry.path):
                groups.setdefault(data.group(1), []).append(entry)
            elif entry.path.endswith(_INDEX) and not is_temporary(entry.path):
                indexes[entry.path.removesuffix(_INDEX)] = entry
        for prefix, index in indexes.items():
            # Other tools have files of this suffix, too.
            if prefix in groups or _bundle(reader, index) is not None:
                groups.setdefault(prefix, []).append(index)
        return tuple(
            _save(prefix, found, indexes.get(prefix), reader) for prefix, found in groups.items()
        )

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        index = next((e for e in save.files if e.path.endswith(_INDEX)), None)
        skipped = "not looked at: an earlier gate failed"
        none = GateResult(Gate.CONTAINER, None, skipped), GateResult(Gate.SET, None, skipped)
        if index is None:
            prefix = _prefix_of(save.files[0].path)
            detail = f"{prefix}{_INDEX} is missing, it is written last: the save did not finish"
            return (common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail), *none)
        check = _index_check(reader, index)
        if check.passed is False:
            return (common.failed(Gate.MARKER, check.reason, check.detail), *none)
        bundle = _bundle(reader, index)
        marker = GateResult(Gate.MARKER, True, "the index, written last, matches its CRC-32C")
        if bundle is None:
            unread = GateResult(Gate.MARKER, None, check.detail)
            return unread, common.container_gate(save, reader), common.set_gate(save, expect=expect)
        files = {_shard_of(entry.path): entry for entry in save.files if entry is not index}
        for shard in range(bundle.shards):
            if shard not in files:
                detail = (
                    f"{_prefix_of(index.path)}: data file {shard} of {bundle.shards} is missing"
                )
                missing = common.failed(Gate.SET, Reason.FILES_MISSING, detail)
                return marker, none[0], missing
        checks = [(files[n], _data_check(reader, files[n], bundle, n)) for n in sorted(files)]
        whole = GateResult(Gate.SET, True, f"all {bundle.shards} data files")
        return marker, common.container_result(checks), whole

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = common.union_of(parts)
        if not any(path.endswith(_INDEX) for path in union):
            detail = "no rank has the index: the save did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        counts = {int(named[3]) for path in union if (named := _DATA.match(path))}
        shards = {int(named[2]) for path in union if (named := _DATA.match(path))}
        for shard in range(max(counts, default=1)):
            if shard not in shards:
                detail = f"data file {shard} of {max(counts, default=1)} is missing"
                return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
        return GateResult(Gate.SET, True, f"the index and {len(shards)} data files")


def _prefix_of(path: str) -> str:
    named = _DATA.match(path) or _LEFT.match(path)
    return named.group(1) if named else path.removesuffix(_INDEX)


def _shard_of(path: str) -> int:
    named = _DATA.match(path)
    return int(named.group(2)) if named else -1


def _index_check(reader: Reader, entry: FileEntry) -> FileCheck:
    """The index read and checked; its content is kept for `_bundle`."""

    def look(window: Window, _: bytearray) -> FileCheck:
        found = tfbundle.read_index(window, caps=reader.caps)
        reader.cache.put(entry.stamp, _QUESTION, found)
        return FileCheck("tf-index", True, f"{len(found.tensors)} tensors")

    return reader.ask(entry, "tf-index", look)


def _bundle(reader: Reader, entry: FileEntry) -> tfbundle.Bundle | None:
    """What the index says; None where it is broken, gone or above a cap."""
    try:
        _index_check(reader, entry)
    except (OSError, UnsafePathError):
        return None
    found = reader.cache.get(entry.stamp, _QUESTION)
    return found if isinstance(found, tfbundle.Bundle) else None


def _data_check(reader: Reader, entry: FileEntry, bundle: tfbundle.Bundle, shard: int) -> FileCheck:
    tensors = bundle.of_shard(shard)

    def look(window: Window, buffer: bytearray) -> FileCheck:
        return tfbundle.check_data(window, buffer, tensors=tensors)

    return reader.ask(entry, ("tf-data", hash(tensors)), look)


@dataclass(frozen=True, slots=True)
class _Told:
    """Plain numbers of a save, by what they count."""

    step: int | None = None
    epoch: int | None = None


def _save(
    prefix: str, found: list[FileEntry], index: FileEntry | None, reader: Reader
) -> FoundSave:
    bundle = _bundle(reader, index) if index is not None else None
    told = _numbers(reader, found, bundle) if bundle is not None else _Told()
    numbers = numbers_in(name_of(prefix))
    facts: dict[str, object] = {}
    optimizer: bool | None = None
    if bundle is not None:
        names = [tensor.name for tensor in bundle.tensors]
        optimizer = any(_is_optimizers(name) for name in names)
        has = parts_named(names, optimizer=optimizer)
        # A learning rate that follows the step is computed from it, and no part of the save.
        facts[HAS] = {part: there for part, there in has.items() if part != "scheduler" or there}
    step, epoch, unit = labels(numbers, {"step": told.step, "epoch": told.epoch})
    if unit:
        facts["unit"] = unit
    if index is not None:
        name = name_of(prefix).replace("\\", "\\\\").replace('"', '\\"')
        state = f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
        facts[POINTERS] = [text_pointer(beside(prefix, "checkpoint"), state)]
    return FoundSave(
        root_key=min(entry.path for entry in found) if index is None else index.path,
        layout=TfCheckpointLayout.name,
        files=tuple(sorted(found, key=lambda entry: entry.path)),
        step=step,
        epoch=epoch,
        full_state=optimizer,
        reused_path=not numbers.sure,
        facts=facts,
    )


def _is_optimizers(name: str) -> bool:
    parts = name.removesuffix(_VALUE).split("/")
    return ".OPTIMIZER_SLOT" in parts or any(
        part.lower().startswith(("optim", "opt_state", "_iterations")) or part == "opt"
        for part in parts
    )


def _numbers(reader: Reader, found: Sequence[FileEntry], bundle: tfbundle.Bundle) -> _Told:
    """`step` before the optimizer's count of iterations; what only counts saves is no step."""
    wanted = [t for t in bundle.tensors if _meaning(t.name) is not None]
    values: dict[str, int] = {}
    for entry in found:
        tensors = tuple(t for t in wanted if t.shard == _shard_of(entry.path))
        if tensors:
            values |= _values(reader, entry, tensors)
    best: dict[str, tuple[int, int]] = {}
    for name, value in values.items():
        kind, rank = _meaning(name) or ("", 9)
        if value >= 0 and (kind not in best or rank < best[kind][0]):
            best[kind] = (rank, value)
    return _Told(*(best[kind][1] if kind in best else None for kind in ("step", "epoch")))


def _values(
    reader: Reader, entry: FileEntry, tensors: tuple[tfbundle.Tensor, ...]
) -> dict[str, int]:
    def look(window: Window, _: bytearray) -> FileCheck:
        numbers = tfbundle.whole_numbers(window, tensors)
        return FileCheck("tf-numbers", None, "", facts=dict(numbers))

    try:
        read = reader.ask(entry, ("tf-numbers", hash(tensors)), look).facts
    except (OSError, UnsafePathError):
        return {}
    return {name: value for name, value in read.items() if isinstance(value, int)}


def _meaning(name: str) -> tuple[str, int] | None:
    """("step" or "epoch", how sure: the smaller the surer)."""
    parts = name.removesuffix(_VALUE).split("/")
    if len(parts) <= 2 and parts[-1] in STEP_KEYS:
        return "step", STEP_KEYS.index(parts[-1])
    if len(parts) <= 2 and parts[-1] in EPOCH_KEYS:
        return "epoch", EPOCH_KEYS.index(parts[-1])
    return ("step", 99) if parts[-1] in _ITERATIONS else None
