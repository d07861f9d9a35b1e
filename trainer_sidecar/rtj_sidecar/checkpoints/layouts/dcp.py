"""PyTorch Distributed Checkpoint directories: `.metadata` and `__<rank>_<i>.distcp`.

`.metadata` is written last and renamed into place: it is the commit marker, and it says which
bytes of which file hold what. Saved again into the same directory, the old `.metadata` stays
beside new shards until the end, and the framework loads such a mix without an error; a shard
written after `.metadata` is therefore refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rtj_sidecar.checkpoints.formats import dcp
from rtj_sidecar.checkpoints.formats.base import FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.facts import EPOCH_KEYS, LOSS_KEYS, STEP_KEYS
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of, owner_directory, parent_of
from rtj_sidecar.checkpoints.layouts.names import NO_NUMBERS, is_temporary, numbers_in
from rtj_sidecar.checkpoints.layouts.torchfile import labels
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

MARKER = ".metadata"
_SHARD = re.compile(r"^__\d+_\d+\.distcp$")


class DcpLayout:
    """`layout: dcp`."""

    name = "dcp"

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        roots: dict[str, list[FileEntry]] = {}
        inner = {
            parent_of(entry.path)
            for entry in listing.files
            if name_of(entry.path) == MARKER or _SHARD.match(name_of(entry.path))
        }
        homes = {directory: _root_of(directory) for directory in inner}
        for entry in listing.files:
            if (root := _home(entry.path, homes)) is not None and not is_temporary(entry.path):
                roots.setdefault(root, []).append(entry)
        return tuple(_save(root, found, reader) for root, found in sorted(roots.items()))

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        files = {entry.path: entry for entry in save.files}
        directories = sorted({parent_of(path) for path in files if _SHARD.match(name_of(path))})
        directories += [
            parent_of(path)
            for path in files
            if name_of(path) == MARKER and parent_of(path) not in directories
        ]
        marker = _marker_gate(directories, files, reader, expect)
        if marker.passed is False:
            return (marker, *_skipped())
        container = _container_gate(files, reader)
        if container.passed is False:
            return (marker, container, _skipped()[1])
        return (marker, container, _set_gate(directories, files, reader, expect))

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = common.union_of(parts)
        wanted: dict[str, int] = {}
        for part in parts:
            needs = part.facts.get("needs")
            wanted.update(needs if isinstance(needs, dict) else {})
        if not wanted:
            detail = "no rank has a .metadata: the save did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        for path, size in sorted(wanted.items()):
            if path not in union:
                detail = f"{path} is missing, .metadata names it"
                return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
            if union[path] != size:
                detail = f"{path} has {union[path]} bytes, .metadata says {size}"
                return common.failed(Gate.SET, Reason.MIXED_GENERATIONS, detail)
        return GateResult(Gate.SET, True, f"all {len(wanted)} files that .metadata names")


def metadata_of(reader: Reader, entry: FileEntry) -> dcp.Metadata | FileCheck:
    """The parsed `.metadata`, or the failed check that says why there is none."""
    found: list[dcp.Metadata] = []

    def look(window: Window, _: bytearray) -> FileCheck:
        found.append(dcp.read_metadata(window, caps=reader.caps))
        return FileCheck("dcp-metadata", True, "parses")

    known = reader.cache.get(entry.stamp, "dcp-metadata-value")
    if isinstance(known, dcp.Metadata):
        return known
    check = reader.ask(entry, "dcp-metadata", look)
    if found:
        reader.cache.put(entry.stamp, "dcp-metadata-value", found[0])
        return found[0]
    return check


def _skipped() -> tuple[GateResult, GateResult]:
    why = "not looked at: an earlier gate failed"
    return GateResult(Gate.CONTAINER, None, why), GateResult(Gate.SET, None, why)


def _root_of(directory: str) -> str:
    """The save's directory: the numbered one at or above the inner directory, else itself."""
    if directory == "." or numbers_in(name_of(directory)):
        return directory
    owner = owner_directory(f"{directory}/x")
    return owner[0] if owner else directory


def _home(path: str, homes: dict[str, str]) -> str | None:
    """The root of the save that a file belongs to. A save in `.` owns only its own top level."""
    roots = set(homes.values())
    directory = parent_of(path)
    if directory == ".":
        name = name_of(path)
        return "." if "." in roots and (name == MARKER or _SHARD.match(name)) else None
    while directory:
        if directory in roots:
            return directory
        directory = directory.rpartition("/")[0]
    return None


def _save(root: str, found: list[FileEntry], reader: Reader) -> FoundSave:
    numbers = numbers_in(name_of(root)) if root != "." else NO_NUMBERS
    files = {entry.path: entry for entry in found}
    facts: dict[str, object] = {}
    needs: dict[str, int] = {}
    keys: list[str] = []
    read: dict[str, object] = {}
    for path, entry in list(files.items()):
        if name_of(path) != MARKER:
            continue
        try:
            metadata = metadata_of(reader, entry)
        except (OSError, UnsafePathError):
            continue
        if isinstance(metadata, FileCheck):
            continue
        prefix = "" if parent_of(path) == "." else parent_of(path) + "/"
        needs |= {prefix + name: size for name, size in metadata.sizes().items()}
        keys += metadata.keys
        facts["save_id"] = metadata.save_id
        read = {**_numbers(reader, files, prefix, metadata), **read}
        # Shards that this .metadata does not name are left from a larger world: not data.
        for other in [
            p for p in files if _SHARD.match(name_of(p)) and parent_of(p) + "/" == prefix
        ]:
            if other not in needs:
                del files[other]
    step, epoch, unit = labels(numbers, read)
    loss = read.get("loss")
    if needs:
        facts["needs"] = dict(sorted(needs.items()))
        facts["keys"] = sorted({key.split(".")[0] for key in keys})[:64]
    if unit:
        facts["unit"] = unit
    optimizer = any("optim" in key.lower() for key in keys)
    return FoundSave(
        root_key=root,
        layout=DcpLayout.name,
        files=tuple(sorted(files.values(), key=lambda entry: entry.path)),
        step=step,
        epoch=epoch,
        loss=float(loss) if isinstance(loss, int | float) else None,
        full_state=(optimizer or _optimizer_directory(files)) if needs else None,
        reused_path=not numbers.sure,
        facts=facts,
    )


def _optimizer_directory(files: dict[str, FileEntry]) -> bool:
    return any(part.startswith("optim") for path in files for part in path.split("/"))


def _numbers(
    reader: Reader, files: dict[str, FileEntry], prefix: str, metadata: dcp.Metadata
) -> dict[str, object]:
    """Step, epoch and loss where they were saved as plain numbers and their shard is here."""
    read: dict[str, object] = {}
    for name, keys in (("step", STEP_KEYS), ("epoch", EPOCH_KEYS), ("loss", LOSS_KEYS)):
        for part in metadata.slices:
            entry = files.get(prefix + part.path)
            if part.key.rsplit(".", 1)[-1] in keys and entry is not None and name not in read:
                value = _number(reader, entry, part)
                if isinstance(value, int | float) and (name == "loss" or value >= 0):
                    read[name] = float(value) if name == "loss" else int(value)
    return read


def _number(reader: Reader, entry: FileEntry, part: dcp.Slice) -> object:
    def look(window: Window, _: bytearray) -> FileCheck:
        value = dcp.read_number(window, part, caps=reader.caps)
        return FileCheck("dcp-number", None, "", facts={"value": value})

    try:
        return reader.ask(entry, ("dcp-number", part), look).facts.get("value")
    except (OSError, UnsafePathError):
        return None


def _marker_gate(
    directories: list[str], files: dict[str, FileEntry], reader: Reader, expect: Expectations
) -> GateResult:
    for directory in directories:
        prefix = "" if directory == "." else directory + "/"
        marker = files.get(prefix + MARKER)
        if marker is None:
            # The coordinator, rank 0, writes it: beside its own shards it is never elsewhere.
            first = any(path.startswith(f"{prefix}__0_") for path in files)
            if not expect.whole and not first:
                detail = f"{prefix}{MARKER} is not here; another rank may hold it"
                return GateResult(Gate.MARKER, None, detail)
            detail = f"{prefix}{MARKER} is missing: the save did not finish"
            return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
        metadata = metadata_of(reader, marker)
        if isinstance(metadata, FileCheck) and metadata.passed is None:
            return GateResult(Gate.MARKER, None, metadata.detail)
        if isinstance(metadata, FileCheck):
            return common.failed(Gate.MARKER, Reason.MARKER_INVALID, metadata.detail)
        for name in metadata.sizes():
            shard = files.get(prefix + name)
            if shard is not None and shard.mtime_ns > marker.mtime_ns:
                detail = (
                    f"{shard.path} was written after {marker.path}: a newer save into the same"
                    " directory did not finish. If the directory was only copied and the copy"
                    f" changed the times, `touch {marker.path}`"
                )
                return common.failed(Gate.MARKER, Reason.MIXED_GENERATIONS, detail)
    return GateResult(Gate.MARKER, True, f"{MARKER}, written last, is there and parses")


def _container_gate(files: dict[str, FileEntry], reader: Reader) -> GateResult:
    slices = _slices_by_file(files, reader)
    return common.container_result(
        (entry, _check(reader, entry, slices.get(path)))
        for path, entry in files.items()
        if name_of(path) != MARKER
    )


def _slices_by_file(
    files: dict[str, FileEntry], reader: Reader
) -> dict[str, tuple[dcp.Slice, ...]]:
    by_file: dict[str, list[dcp.Slice]] = {}
    for path, entry in files.items():
        if name_of(path) == MARKER:
            metadata = metadata_of(reader, entry)
            prefix = "" if parent_of(path) == "." else parent_of(path) + "/"
            for part in () if isinstance(metadata, FileCheck) else metadata.slices:
                by_file.setdefault(prefix + part.path, []).append(part)
    return {path: tuple(parts) for path, parts in by_file.items()}


def _check(reader: Reader, entry: FileEntry, slices: tuple[dcp.Slice, ...] | None) -> FileCheck:
    if slices is None:
        return common.check_of(reader, entry)

    def look(window: Window, buffer: bytearray) -> FileCheck:
        wanted = max((part.offset + part.length for part in slices), default=0)
        if window.size != wanted:
            raise MalformedError(
                f"it has {window.size} bytes, .metadata says {wanted}",
                reason=Reason.TRUNCATED if window.size < wanted else Reason.MIXED_GENERATIONS,
            )
        return dcp.check_shard(window, buffer, slices=slices, caps=reader.caps)

    return reader.ask(entry, ("dcp-shard", hash(slices)), look)


def _set_gate(
    directories: list[str], files: dict[str, FileEntry], reader: Reader, expect: Expectations
) -> GateResult:
    wanted = _slices_by_file(files, reader)
    if missing := sorted(path for path in wanted if path not in files):
        if not expect.whole:
            return GateResult(Gate.SET, None, f"{missing[0]} is not here; another rank may hold it")
        detail = f"{missing[0]} is missing, .metadata names it"
        return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    if not wanted:
        return GateResult(Gate.SET, None, "no .metadata here says which files belong to it")
    return GateResult(Gate.SET, True, f"all {len(wanted)} files that .metadata names")
