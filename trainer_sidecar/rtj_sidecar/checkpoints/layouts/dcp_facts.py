"""What the files of DCP directories say of a save: keys, sizes, single numbers. No gates.

Where `.metadata` and the shard with the step lie on disks of two ranks, the facts of one hold where
it lies (`labels_at`) and those of the other what lies there (`loose_numbers`): `joined_numbers`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rtj_sidecar.checkpoints.formats import dcp, dcp_numbers
from rtj_sidecar.checkpoints.formats.base import FileCheck, Window
from rtj_sidecar.checkpoints.formats.facts import (
    EPOCH_KEYS,
    LOSS_KEYS,
    STEP_KEYS,
    number,
    whole_number,
)
from rtj_sidecar.checkpoints.layouts.dcp_rules import MARKER, SHARD, metadata_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS, parts_named
from rtj_sidecar.checkpoints.types import FileEntry

_AT, _NUMBERS = "labels_at", "loose_numbers"


@dataclass(frozen=True, slots=True)
class DcpFacts:
    """Over all DCP directories among some files."""

    files: tuple[FileEntry, ...]
    """The files, sorted by path, without shards that no `.metadata` beside them names: those are
    left from a larger world and no data."""
    facts: Mapping[str, object]
    """`needs` (path -> size, for `dcp_rules.union_gate`), `keys` (first parts), `save_id`, `has`,
    where a `.metadata` could be read; `labels_at`, `loose_numbers`: see above."""
    numbers: Mapping[str, object]
    """`step`, `epoch`, `loss` where they were saved as single numbers and their shard is here."""
    full_state: bool | None


def read_facts(found: Iterable[FileEntry], reader: Reader) -> DcpFacts:
    """Never raises: what cannot be read is not told."""
    files = {entry.path: entry for entry in found}
    facts: dict[str, object] = {}
    needs: dict[str, int] = {}
    keys: list[str] = []
    read: dict[str, object] = {}
    elsewhere: dict[str, list[object]] = {}
    homes: set[str] = set()
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
        homes.add(parent_of(path))
        read = {**_numbers(reader, files, prefix, metadata), **read}
        elsewhere = {**_elsewhere(files, prefix, metadata), **elsewhere}
        stale = [p for p in files if SHARD.match(name_of(p)) and parent_of(p) == parent_of(path)]
        for other in stale:
            if other not in needs:
                del files[other]
    optimizer = any("optim" in key.lower() for key in keys) or _optimizer_directory(files)
    if absent := {name: at for name, at in elsewhere.items() if name not in read}:
        facts[_AT] = absent
    if loose := _loose(reader, files, homes):
        facts[_NUMBERS] = loose
    if needs:
        facts["needs"] = dict(sorted(needs.items()))
        facts["keys"] = sorted({key.split(".")[0] for key in keys})[:64]
        facts[HAS] = parts_named(keys, optimizer=optimizer)
    return DcpFacts(
        files=tuple(sorted(files.values(), key=lambda entry: entry.path)),
        facts=facts,
        numbers=read,
        full_state=optimizer if needs else None,
    )


def _optimizer_directory(files: dict[str, FileEntry]) -> bool:
    return any(part.startswith("optim") for path in files for part in path.split("/"))


def joined_numbers(told: Iterable[Mapping[str, object]]) -> dict[str, int | float]:
    """`step`, `epoch`, `loss`, of which one rank's facts tell the place and another's the value.

    Tolerates facts of any shape: they are read from records.
    """
    places: dict[str, tuple[str, str]] = {}
    values: dict[tuple[str, str], int | float] = {}
    for facts in told:
        at, numbers = facts.get(_AT), facts.get(_NUMBERS)
        for name, place in (at if isinstance(at, dict) else {}).items():
            if isinstance(place, list) and len(place) == 2:
                places.setdefault(str(name), (str(place[0]), str(place[1])))
        for path, of in (numbers if isinstance(numbers, dict) else {}).items():
            for offset, value in (of if isinstance(of, dict) else {}).items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    values.setdefault((str(path), str(offset)), value)
    joined = {}
    for name, place in places.items():
        if place in values and (kept := _kept(name, values[place])) is not None:
            joined[name] = kept
    return joined


def _kept(name: str, value: object) -> int | float | None:
    if name == "loss":
        return number(value)
    return whole_number(value)


def _wanted(metadata: dcp.Metadata) -> Iterator[tuple[str, dcp.Slice]]:
    """("step", "epoch" or "loss", its slice): what may be that number, by its key.

    An optimizer counts its own steps, one for each tensor.
    """
    for name, keys in (("step", STEP_KEYS), ("epoch", EPOCH_KEYS), ("loss", LOSS_KEYS)):
        for part in metadata.slices:
            *above, last = part.key.split(".")
            if last in keys and not any(word.startswith("optim") for word in above):
                yield name, part


def _numbers(
    reader: Reader, files: dict[str, FileEntry], prefix: str, metadata: dcp.Metadata
) -> dict[str, object]:
    """Step, epoch and loss where they were saved as single numbers and their shard is here."""
    read: dict[str, object] = {}
    for name, part in _wanted(metadata):
        entry = files.get(prefix + part.path)
        if entry is None or name in read:
            continue
        if (value := _kept(name, _number(reader, entry, part))) is not None:
            read[name] = value
    return read


def _elsewhere(
    files: dict[str, FileEntry], prefix: str, metadata: dcp.Metadata
) -> dict[str, list[object]]:
    """Name -> [path, offset], of those whose shard is on another disk."""
    found: dict[str, list[object]] = {}
    for name, part in _wanted(metadata):
        if prefix + part.path not in files:
            found.setdefault(name, [prefix + part.path, part.offset])
    return found


def _loose(
    reader: Reader, files: dict[str, FileEntry], homes: Collection[str]
) -> dict[str, dict[str, int | float]]:
    """Path -> offset -> number, in shards whose `.metadata` is on another disk."""
    found: dict[str, dict[str, int | float]] = {}
    for path, entry in files.items():
        if SHARD.match(name_of(path)) and parent_of(path) not in homes:
            numbers = _at_head(reader, entry)
            if numbers:
                found[path] = numbers
    return found


def _at_head(reader: Reader, entry: FileEntry) -> dict[str, int | float]:
    def look(window: Window, _: bytearray) -> FileCheck:
        numbers = dcp_numbers.numbers_at_head(window, caps=reader.caps)
        # As text: JSON has no other keys, and no infinities.
        told = {str(at): n for at, n in numbers.items() if number(n) is not None}
        return FileCheck("dcp-head", None, "", facts=told)

    try:
        facts = reader.ask(entry, "dcp-head", look).facts
    except (OSError, UnsafePathError):
        return {}
    return {at: n for at, n in facts.items() if isinstance(n, int | float)}


def _number(reader: Reader, entry: FileEntry, part: dcp.Slice) -> object:
    def look(window: Window, _: bytearray) -> FileCheck:
        value = dcp_numbers.number_at(window, part, caps=reader.caps)
        return FileCheck("dcp-number", None, "", facts={"value": value})

    try:
        return reader.ask(entry, ("dcp-number", part), look).facts.get("value")
    except (OSError, UnsafePathError):
        return None
