"""Keras 3: `.keras` archives, `.weights.h5` and `.h5` files, and the directory of BackupAndRestore.

BackupAndRestore overwrites `latest.weights.h5` in place and then writes `training_metadata.json`; a
kill in between leaves weights of one epoch beside the count of another, which Keras loads. The pair
is therefore one save, and weights newer than the count are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rtj_sidecar.checkpoints.formats import hdf5, zips
from rtj_sidecar.checkpoints.formats.base import FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.facts import whole_number
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.layouts.guides import keras as guides
from rtj_sidecar.checkpoints.layouts.names import (
    NO_NUMBERS,
    is_temporary,
    numbers_in,
    pattern_of,
)
from rtj_sidecar.checkpoints.layouts.stated import beside
from rtj_sidecar.checkpoints.layouts.torchfile import labels, with_aliases
from rtj_sidecar.checkpoints.paths import UnsafePathError
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

WEIGHTS, COUNT = "latest.weights.h5", "training_metadata.json"
_COPY = ".bkp"
"""What `double_checkpoint=True` keeps of the backup before."""
_SURE = (".keras", ".weights.h5")
_HDF5 = (".h5", ".hdf5")
_ITERATIONS = ("optimizer/vars/0", "iteration", "iterations")
_OPTIMIZER = ("optimizer/", "optimizer_weights/")
_MODEL = ("layers/", "model_weights/", "_layer_checkpoint_dependencies/", "vars/")


class KerasLayout:
    """`layout: keras`."""

    name = "keras"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        files = {entry.path: entry for entry in listing.files}
        backups = [_backup(entry, files, reader) for p, entry in files.items() if _is_backup(p)]
        taken = {entry.path for save in backups for entry in save.all_files}
        found, broken = [], []
        for path, entry in files.items():
            if path in taken or is_temporary(path) or not path.endswith((".keras", *_HDF5)):
                continue
            told = _told(entry, reader)
            if told.get("model") is True:
                found.append((entry, told))
            elif "model" not in told:
                broken.append(entry)
        names = {pattern_of(entry.path) for entry, _ in found}
        found += [(e, {}) for e in broken if e.path.endswith(_SURE) or pattern_of(e.path) in names]
        numbered = [_file(e, told) for e, told in found if numbers_in(_plain(e.path))]
        fixed = [_file(e, told) for e, told in found if not numbers_in(_plain(e.path))]
        # Weights without a step are an output; a torn file must be seen as torn.
        fixed = [save for save in fixed if save.step is not None or save.full_state is None]
        return (*backups, *with_aliases(numbered, fixed))

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        if not _is_backup(save.root_key):
            container = common.container_gate(save, reader)
            return common.no_marker("Keras"), container, common.set_gate(save, expect=expect)
        files = {entry.path: entry for entry in save.files}
        count = files.get(beside(save.root_key, COUNT))
        weights = files[save.root_key]
        container = common.container_result([(weights, common.check_of(reader, weights))])
        if container.passed is False:
            why = "not looked at: an earlier gate failed"
            return GateResult(Gate.MARKER, None, why), container, GateResult(Gate.SET, None, why)
        marker = _backup_marker(save, weights, count, reader)
        return marker, container, GateResult(Gate.SET, True, f"weights and {COUNT}")

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        return common.union_by_history(parts, expect=expect)


def _plain(path: str) -> str:
    return name_of(path).replace(".weights.h5", ".h5")


def _is_backup(path: str) -> bool:
    return name_of(path) == WEIGHTS


def _backup(entry: FileEntry, files: Mapping[str, FileEntry], reader: Reader) -> FoundSave:
    """The pair; copies of the pair before ride along, so that they never outlive it."""
    count = files.get(beside(entry.path, COUNT))
    spare = [files.get(beside(entry.path, name + _COPY)) for name in (WEIGHTS, COUNT)]
    told = _told(entry, reader)
    stated = _count(count, reader)
    epoch = whole_number(stated.get("epoch"))
    facts = _facts(told)
    if (batch := whole_number(stated.get("batch"))) is not None:
        facts["batch"] = batch
    step = told.get("step")
    return FoundSave(
        root_key=entry.path,
        layout=KerasLayout.name,
        files=(entry,) if count is None else (entry, count),
        aliases=tuple(found for found in spare if found is not None),
        step=step if isinstance(step, int) else None,
        epoch=epoch,
        full_state=_full(told),
        reused_path=True,
        facts={**facts, "unit": "step" if isinstance(step, int) else "epoch"},
    )


def _count(entry: FileEntry | None, reader: Reader) -> Mapping[str, object]:
    if entry is None:
        return {}
    try:
        return common.json_of(reader, entry, keep=("epoch", "batch")).facts
    except (OSError, UnsafePathError):
        return {}


def _backup_marker(
    save: FoundSave, weights: FileEntry, count: FileEntry | None, reader: Reader
) -> GateResult:
    if count is None:
        detail = f"{beside(save.root_key, COUNT)} is missing, it is written last"
        return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
    check = common.json_of(reader, count, keep=("epoch", "batch"))
    if check.passed is None:
        return GateResult(Gate.MARKER, None, check.detail)
    if not check.passed or whole_number(check.facts.get("epoch")) is None:
        detail = check.detail if not check.passed else f"{count.path} states no epoch"
        return common.failed(Gate.MARKER, Reason.MARKER_INVALID, detail)
    if weights.mtime_ns > count.mtime_ns:
        detail = (
            f"{weights.path} was written after {count.path}: the backup did not finish, and the two"
            " are of different epochs. If the directory was only copied and the copy changed the"
            f" times, `touch {count.path}`"
        )
        return common.failed(Gate.MARKER, Reason.MIXED_GENERATIONS, detail)
    return GateResult(Gate.MARKER, True, f"{COUNT}, written last, parses")


def _file(entry: FileEntry, told: Mapping[str, object]) -> FoundSave:
    numbers = numbers_in(_plain(entry.path)) or NO_NUMBERS
    step, epoch, unit = labels(numbers, told)
    return FoundSave(
        root_key=entry.path,
        layout=KerasLayout.name,
        files=(entry,),
        step=step,
        epoch=epoch,
        full_state=_full(told),
        reused_path=not numbers.sure,
        facts={**_facts(told), **({"unit": unit} if unit else {})},
    )


def _full(told: Mapping[str, object]) -> bool | None:
    found = told.get("optimizer")
    return found if isinstance(found, bool) else None


def _facts(told: Mapping[str, object]) -> dict[str, object]:
    """Keras saves no RNG state, and computes a schedule from the optimizer's count."""
    if not told:
        return {}
    return {HAS: {"optimizer": told.get("optimizer") is True, "rng": False, "loader": False}}


def _told(entry: FileEntry, reader: Reader) -> Mapping[str, object]:
    """`model`: whether it is Keras's; `optimizer`: whether its variables are in it; `step`: the
    optimizer's count of iterations. Empty where the file is broken or gone."""

    def look(window: Window, _: bytearray) -> FileCheck:
        inner = _weights_in(window, reader) if entry.path.endswith(".keras") else window
        if inner is None:
            return FileCheck("keras", None, "", facts={"model": True})
        found = hdf5.read(inner, caps=reader.caps)
        names = list(found.datasets)
        facts: dict[str, object] = {
            "model": entry.path.endswith(_SURE) or any(n.startswith(_MODEL) for n in names),
        }
        if found.walked:
            facts["optimizer"] = any(n.startswith(_OPTIMIZER) for n in names)
        for name in names:
            last = name.rpartition("/")[2]
            counts = name == _ITERATIONS[0] or (
                name.startswith(_OPTIMIZER) and last.partition(":")[0] in _ITERATIONS[1:]
            )
            value = hdf5.whole_number(inner, found.datasets[name]) if counts else None
            if value is not None:
                facts["step"] = value
        return FileCheck("keras", None, "", facts=facts)

    try:
        check = reader.ask(entry, "keras", look)
    except (OSError, UnsafePathError):
        return {}
    return check.facts


def _weights_in(window: Window, reader: Reader) -> Window | None:
    """The HDF5 file within an archive; None where it is packed and so not read."""
    archive = zips.read_archive(window, caps=reader.caps)
    for member in archive.members:
        if member.name == "model.weights.h5":
            begin = zips.data_offset(window, archive, member)
            return window.part(begin, member.size) if member.packed == member.size else None
    raise MalformedError("it has no model.weights.h5: no archive of Keras")
