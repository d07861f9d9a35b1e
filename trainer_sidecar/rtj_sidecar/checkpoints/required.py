"""`checkpoint.validation.requiredKeys`: does a save hold the names that a person asked for?

Names are read inertly: the keys of a torch zip's pickle, the header of safetensors, `.metadata` of
DCP. Where they cannot be read that is said, and never taken for yes or no.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rtj_sidecar.checkpoints.formats import tensors
from rtj_sidecar.checkpoints.formats.base import FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.sniff import TORCH_SUFFIXES
from rtj_sidecar.checkpoints.formats.torchzip import ZIP_MAGIC
from rtj_sidecar.checkpoints.layouts.dcp_rules import MARKER, metadata_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave

FACT = "required"
_SHOWN = 5
_TENSORS = 64 * 1024  # a smaller file that cannot be read is a note, a tokenizer, a random state


@dataclass(frozen=True, slots=True)
class Required:
    """What was found of the required patterns. `where`: the files whose names were read;
    `unread`: those whose names cannot be."""

    held: tuple[str, ...]
    missing: tuple[str, ...]
    where: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def as_fact(self) -> dict[str, list[str]]:
        return {
            "held": list(self.held),
            "missing": list(self.missing),
            "where": list(self.where[:_SHOWN]),
            "unread": list(self.unread[:_SHOWN]),
        }


def required_of(save: FoundSave, reader: Reader, *, patterns: Sequence[str]) -> Required:
    """Raises OSError, UnsafePathError where a file is gone or changing."""
    names: set[str] = set()
    where: list[str] = []
    unread: list[str] = []
    for entry in save.files:
        found = _names(reader, entry)
        if found is None and (entry.size >= _TENSORS or len(save.files) == 1):
            unread.append(entry.path)
        elif found:
            where.append(entry.path)
            names |= found
    names = _with_containers(names)
    held = [pattern for pattern in patterns if is_held(pattern, names)]
    missing = [pattern for pattern in patterns if pattern not in held]
    return Required(tuple(held), tuple(missing), tuple(where), tuple(unread))


def is_held(pattern: str, names: Collection[str]) -> bool:
    """A name equals the pattern, or matches its globs (`*` also crosses dots)."""
    if not any(sign in pattern for sign in "*?"):
        return pattern in names
    return any(fnmatchcase(name, pattern) for name in names)


def lacking(
    told: Mapping[str, object] | None, *, patterns: Sequence[str]
) -> tuple[str, str] | None:
    """(pattern, where it was looked for) of the first required name that the fact `required` of a
    save says is not in it; None where none is, or it cannot be told. Pure."""
    if told is None:
        return None
    missing, where, unread = (_texts(told.get(key)) for key in ("missing", "where", "unread"))
    if unread or not where:
        return None
    lost = next((pattern for pattern in patterns if pattern in missing), None)
    return (lost, ", ".join(where)) if lost is not None else None


def unread(told: Mapping[str, object] | None, *, patterns: Sequence[str]) -> str | None:
    """The files whose names could not be read, so that some pattern could not be decided. Pure."""
    if told is None or not patterns:
        return None
    missing, files = _texts(told.get("missing")), _texts(told.get("unread"))
    undecided = [pattern for pattern in patterns if pattern in missing]
    if not undecided or (not files and _texts(told.get("where"))):
        return None
    return ", ".join(files) or "any of its files"


def merged(told: Iterable[Mapping[str, object]]) -> dict[str, list[str]] | None:
    """The fact over all ranks' parts: held where one holds it. None where no part tells."""
    parts = list(told)
    if not parts:
        return None
    held = {pattern for part in parts for pattern in _texts(part.get("held"))}
    missing = {pattern for part in parts for pattern in _texts(part.get("missing"))}
    where = [path for part in parts for path in _texts(part.get("where"))]
    files = [path for part in parts for path in _texts(part.get("unread"))]
    left = sorted(missing - held)
    return Required(tuple(sorted(held)), tuple(left), tuple(where), tuple(files)).as_fact()


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _with_containers(names: Iterable[str]) -> set[str]:
    every: set[str] = set()
    for name in names:
        while name and name not in every:
            every.add(name)
            name = name.rpartition(".")[0]
    return every


def _names(reader: Reader, entry: FileEntry) -> frozenset[str] | None:
    """All names in a file; none where it is no file of tensors; None where they cannot be read."""
    name = name_of(entry.path)
    if name == MARKER:
        metadata = metadata_of(reader, entry)
        return None if isinstance(metadata, FileCheck) else frozenset(metadata.keys)
    if name.endswith((".distcp", ".json", ".txt", ".py", ".md", ".model")):
        return frozenset()  # what shards hold, `.metadata` says; texts hold no tensors
    known = reader.cache.get(entry.stamp, "names")
    if isinstance(known, frozenset):
        return known
    found: list[frozenset[str]] = []

    def look(window: Window, _: bytearray) -> FileCheck:
        if name.endswith(".safetensors"):
            found.append(tensors.of_safetensors(window, caps=reader.caps).names)
        elif not name.endswith(TORCH_SUFFIXES) or window.read(0, min(4, window.size)) != ZIP_MAGIC:
            raise MalformedError("its names cannot be read")
        else:
            found.append(tensors.of_torch(window, caps=reader.caps).names)
        return FileCheck("names", None, "read")

    check = reader.ask(entry, "names-read", look)
    if check.format != "names" or not found:
        return None
    reader.cache.put(entry.stamp, "names", found[0])
    return found[0]
