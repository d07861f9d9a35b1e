"""Gates and fact reading that several layouts share."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Mapping

from rtj_sidecar.checkpoints.formats import jsonfile, sniff
from rtj_sidecar.checkpoints.formats.base import FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.layouts.names import pattern_of, rank_in
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

_LIBRARY_JSON = frozenset(
    {
        "config.json",
        "generation_config.json",
        "adapter_config.json",
        "trainer_state.json",
        "metadata.json",
        "training_metadata.json",
    }
)
"""Written by the libraries themselves, each one value: cut off, the save cannot be loaded."""


def check_of(reader: Reader, entry: FileEntry) -> FileCheck:
    """The file's own proof, read at most once for each of its states."""
    return reader.ask(
        entry,
        ("check", name_of(entry.path)),
        lambda window, buffer: sniff.check_file(
            window, buffer, name=name_of(entry.path), caps=reader.caps
        ),
    )


def peek_of(reader: Reader, entry: FileEntry) -> FileCheck | None:
    """Facts of the file, cheap; None where it is gone or changing. A broken file has failed."""

    def look(window: Window, _: bytearray) -> FileCheck:
        return sniff.peek(window, name=name_of(entry.path), caps=reader.caps)

    try:
        return reader.ask(entry, "peek", look)
    except (OSError, UnsafePathError):
        return None


def json_of(reader: Reader, entry: FileEntry, *, keep: Iterable[str]) -> FileCheck:
    """A JSON object's named fields, as the facts of a check that failed where it does not parse."""
    names = tuple(keep)

    def look(window: Window, _: bytearray) -> FileCheck:
        value = jsonfile.load(window, caps=reader.caps)
        if not isinstance(value, dict):
            raise MalformedError("it is no JSON object")
        return FileCheck("json", True, "parses", facts={k: value[k] for k in names if k in value})

    return reader.ask(entry, ("json", names), look)


def container_gate(save: FoundSave, reader: Reader) -> GateResult:
    """Fails on the first file that its own format refutes; passes where most bytes are proved."""
    checks = [(entry, check_of(reader, entry)) for entry in save.files]
    for entry in save.aliases:
        check = check_of(reader, entry)
        if check.passed is False and not _is_extra(entry.path):
            checks.append((entry, check))
    if not any(check.passed for _, check in checks) and _holds_nothing(save.files, reader):
        detail = f"{save.root_key} holds no bytes but zeros: nothing of it reached the disk"
        return failed(Gate.CONTAINER, Reason.TRUNCATED, detail)
    return container_result(checks, all_json=all(e.path.endswith(".json") for e in save.files))


def _holds_nothing(entries: Iterable[FileEntry], reader: Reader) -> bool:
    """Every file is empty or zeros: what a power cut leaves of files that were never flushed.
    Stops at the first byte that is none."""

    def look(window: Window, buffer: bytearray) -> FileCheck:
        for at in range(0, window.size, len(buffer)):
            if any(window.read(at, min(len(buffer), window.size - at))):
                return FileCheck("zeros", False, "")
        return FileCheck("zeros", True, "")

    return all(reader.ask(entry, "zeros", look).passed for entry in entries)


def not_torch(entries: Iterable[FileEntry], reader: Reader) -> GateResult | None:
    """A failed container gate where one of the files, which its framework writes by torch.save
    under a name that other things bear too (`.bin`, `.pkl`), is none of torch: empty, or zeros."""
    for entry in entries:
        check = check_of(reader, entry)
        if check.passed is False:
            return failed(Gate.CONTAINER, check.reason, _named(entry.path, check.detail))
        if check.format == "unknown":
            detail = f"{entry.path} is no file of torch: empty, cut off or overwritten"
            return failed(Gate.CONTAINER, Reason.TRUNCATED, detail)
    return None


def container_result(
    checks: Iterable[tuple[FileEntry, FileCheck]], *, all_json: bool = False
) -> GateResult:
    """The gate over (file, its check). None where the bytes that prove themselves are the fewer.

    A JSON text that parses refutes nothing and proves nothing of the tensors beside it; `all_json`:
    there is nothing beside it, so one that does not parse is no mere extra.
    """
    proved = silent = count = total = 0
    for entry, check in checks:
        extra = not all_json and _is_extra(entry.path)
        if check.passed is False and not extra:
            return failed(Gate.CONTAINER, check.reason, _named(entry.path, check.detail))
        total += 1
        if check.passed and check.format != "json":
            count += 1
            proved += entry.size
        elif check.format != "json" and not extra:
            silent += entry.size
    if not count or proved < silent:
        return GateResult(Gate.CONTAINER, None, f"{count} of {total} files can prove themselves")
    detail = f"{count} of {total} files proved by their own format"
    return GateResult(Gate.CONTAINER, True, detail)


def _is_extra(path: str) -> bool:
    """A JSON file that no layout names: a script's log of many values or its empty placeholder, of
    which nobody can say that it is broken."""
    name = name_of(path)
    named = name in _LIBRARY_JSON or name.endswith(".index.json")
    return name.endswith(".json") and not named


def failed(gate: Gate, reason: Reason, detail: str) -> GateResult:
    return GateResult(gate, False, detail, reason)


def _named(path: str, detail: str) -> str:
    return detail if detail.startswith(path) else f"{path}: {detail}"


def no_marker(what: str) -> GateResult:
    return GateResult(Gate.MARKER, None, f"{what} leaves no commit marker")


def name_set(save: FoundSave) -> frozenset[str]:
    """Patterns of the save's own file names, comparable between two saves.

    Without "best" files: they are there only when a metric improved.
    """
    patterns = (pattern_of(entry.path) for entry in save.files)
    return frozenset(found for found in patterns if "best" not in name_of(found).lower())


def family_of(save: FoundSave) -> tuple[str, str, bool] | None:
    """Saves of one family have the same files; None for one of a fixed name, which has none."""
    if save.reused_path:
        return None
    directory = all(entry.path != save.root_key for entry in save.files)
    return (
        save.layout,
        pattern_of(save.root_key if directory else parent_of(save.root_key)),
        directory,
    )


def set_gate(save: FoundSave, *, expect: Expectations) -> GateResult:
    """The same file names as the earlier saves all had, and every rank's file where names say so.

    History can only condemn, never prove; and two saves in a row that leave the same file out are
    believed, because the caller passes the last two sets whatever their verdict.
    """
    ranks = _ranks((entry.path for entry in save.files), expect)
    if ranks and expect.whole:
        count = max(expect.demanded or 0, max(ranks) + 1)
        if (missing := first_gap(ranks, count)) is not None:
            return failed(
                Gate.SET, Reason.FILES_MISSING, f"{save.root_key}: no file of rank {missing}"
            )
    if not expect.name_sets:
        if ranks and expect.whole:
            return GateResult(Gate.SET, True, f"files of all {len(ranks)} ranks")
        return GateResult(Gate.SET, None, "nothing says which files belong to it")
    own, wanted = name_set(save), frozenset.intersection(*expect.name_sets)
    # Only a strict part of what was there before: other names mean that the user renamed them.
    if own < wanted:
        missing_names = sorted(wanted - own)
        return failed(
            Gate.SET,
            Reason.FILES_MISSING,
            f"{save.root_key}: {_some(missing_names)} is missing, earlier saves had it",
        )
    same = "the same files as" if own >= wanted else "other file names than"
    return GateResult(Gate.SET, None, f"{same} the saves before it")


def _ranks(paths: Iterable[str], expect: Expectations) -> frozenset[int]:
    """Ranks of the world that the names state. One number alone, above the world, is none: it may
    be the rank of a matrix."""
    found = frozenset(r for path in paths if (r := rank_in(name_of(path))) is not None)
    alone = len(found) == 1 and max(found) >= max(expect.world_size or 0, 1)
    return frozenset() if alone else found


def missing_rank_file(paths: Collection[str], *, world_size: int | None) -> str | None:
    """What is missing where names state ranks (`model_rank3.bin`): each such family of names must
    have every rank's, up to the largest seen and up to the world's."""
    families: dict[str, dict[int, str]] = {}
    stated = {r for path in paths if (r := rank_in(name_of(path))) is not None}
    if len(stated) == 1 and max(stated) >= max(world_size or 0, 1):
        return None
    for path in paths:
        if (rank := rank_in(name_of(path))) is not None:
            families.setdefault(pattern_of(path), {})[rank] = path
    for _, there in sorted(families.items()):
        for rank in range(max(world_size or 0, max(there) + 1)):
            if rank not in there:
                return f"the file of rank {rank} beside {there[min(there)]} is missing"
    return None


def index_problem(
    reader: Reader, files: Mapping[str, FileEntry], index: FileEntry
) -> tuple[Reason, str] | None:
    """What is wrong between a `*.index.json` and the shards beside it; None where all is well."""
    check = json_of(reader, index, keep=("weight_map", "metadata"))
    if check.passed is False:
        return check.reason, _named(index.path, check.detail)
    weights, metadata = check.facts.get("weight_map"), check.facts.get("metadata")
    if not isinstance(weights, dict) or not all(isinstance(v, str) for v in weights.values()):
        return Reason.MALFORMED, f"{index.path}: it has no weight_map of file names"
    prefix = parent_of(index.path)
    total, known = 0, True
    for name in sorted(set(weights.values())):
        path = name if prefix == "." else f"{prefix}/{name}"
        if path not in files:
            return Reason.FILES_MISSING, f"{path} is missing, {name_of(index.path)} names it"
        size = check_of(reader, files[path]).facts.get("bytes")
        known = known and isinstance(size, int)
        total += size if isinstance(size, int) else 0
    stated = metadata.get("total_size") if isinstance(metadata, dict) else None
    if known and isinstance(stated, int) and stated != total:
        return Reason.FILES_MISSING, f"{index.path}: total_size {stated}, its shards hold {total}"
    return None


def union_of(parts: Iterable[PartFiles]) -> dict[str, int]:
    """Path -> size over all parts, aside from per-rank copies of the same path."""
    union: dict[str, int] = {}
    for part in parts:
        union.update(part.files)
    return union


def union_by_history(parts: Iterable[PartFiles], *, expect: Expectations) -> GateResult:
    """The set gate over parts for layouts that only history can tell about. Passed only where the
    names number the ranks and none of those that made it is missing: else nothing says how much
    belongs to it, and None is all that can be told."""
    union = union_of(parts)
    if not union:
        return failed(Gate.SET, Reason.FILES_MISSING, "no rank has a file of it")
    ranks = _ranks(union, expect)
    if ranks:
        count = max(expect.demanded or 0, max(ranks) + 1)
        if (missing := first_gap(ranks, count)) is not None:
            return failed(Gate.SET, Reason.FILES_MISSING, f"no file of rank {missing}")
    if expect.name_sets:
        wanted = frozenset.intersection(*expect.name_sets)
        present = {pattern_of(path) for path in union}
        if present & wanted and (absent := sorted(wanted - present)):
            return failed(Gate.SET, Reason.FILES_MISSING, f"{_some(absent)} is missing")
    counted = bool(ranks) and expect.demanded is not None
    return GateResult(Gate.SET, True if counted else None, f"{len(union)} files")


def first_gap(there: Container[int], count: int) -> int | None:
    """The first number below `count` that is not there. Never all of them: a name can state any."""
    return next((number for number in range(count) if number not in there), None)


def _some(items: Iterable[object]) -> str:
    names = [str(item) for item in items]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def plain(value: object) -> object:
    """The value if JSON can hold it, else its text: facts must stay plain."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)[:200]
    return value
