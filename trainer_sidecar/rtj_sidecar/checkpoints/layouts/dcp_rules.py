"""The rules of a PyTorch Distributed Checkpoint, for every layout that has such directories inside.

`.metadata` is the commit marker, and it says which bytes of which file hold what. Saved again into
the same directory, the old `.metadata` stays beside new shards until the end, and the framework
loads such a mix without an error; a shard written after `.metadata` is therefore refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rtj_sidecar.checkpoints.formats import dcp
from rtj_sidecar.checkpoints.formats.base import FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    Gate,
    GateResult,
    PartFiles,
    Reason,
)

MARKER = ".metadata"
SHARD = re.compile(r"^__\d+_\d+\.distcp$")


def gates(
    entries: Iterable[FileEntry], *, reader: Reader, expect: Expectations
) -> tuple[GateResult, GateResult, GateResult]:
    """Marker, container and set over all of the directories with shards among `entries`; other
    files are only checked by their own format. Raises OSError, UnsafePathError."""
    files = {entry.path: entry for entry in entries}
    directories = sorted({parent_of(path) for path in files if SHARD.match(name_of(path))})
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


def union_gate(parts: Sequence[PartFiles]) -> GateResult:
    """The set over all ranks' parts, by the `needs` in their facts (path -> size)."""
    union = common.union_of(parts)
    wanted: dict[str, int] = {}
    for part in parts:
        needs = part.facts.get("needs")
        wanted.update(needs if isinstance(needs, dict) else {})
    if not wanted:
        detail = "no rank has a .metadata: the save did not finish"
        return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
    homes = {parent_of(path) for path in union if SHARD.match(name_of(path))}
    for marker in sorted(MARKER if home == "." else f"{home}/{MARKER}" for home in homes):
        if marker not in union:
            detail = f"no rank has {marker}: the save did not finish"
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
