"""What the `.metadata` of DCP directories say of a save: keys, sizes, plain numbers. No gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rtj_sidecar.checkpoints.formats import dcp
from rtj_sidecar.checkpoints.formats.base import FileCheck, Window
from rtj_sidecar.checkpoints.formats.facts import EPOCH_KEYS, LOSS_KEYS, STEP_KEYS
from rtj_sidecar.checkpoints.layouts.dcp_rules import MARKER, SHARD, metadata_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS, parts_named
from rtj_sidecar.checkpoints.types import FileEntry


@dataclass(frozen=True, slots=True)
class DcpFacts:
    """Over all DCP directories among some files."""

    files: tuple[FileEntry, ...]
    """The files, sorted by path, without shards that no `.metadata` beside them names: those are
    left from a larger world and no data."""
    facts: Mapping[str, object]
    """`needs` (path -> size, for `dcp_rules.union_gate`), `keys` (first parts), `save_id`, `has`;
    empty where no `.metadata` could be read."""
    numbers: Mapping[str, object]
    """`step`, `epoch`, `loss` where they were saved as plain numbers and their shard is here."""
    full_state: bool | None


def read_facts(found: Iterable[FileEntry], reader: Reader) -> DcpFacts:
    """Never raises: what cannot be read is not told."""
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
        stale = [p for p in files if SHARD.match(name_of(p)) and parent_of(p) == parent_of(path)]
        for other in stale:
            if other not in needs:
                del files[other]
    optimizer = any("optim" in key.lower() for key in keys) or _optimizer_directory(files)
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
