"""Plain values at the top of a torch file's pickle, by name, without its tensors.

For layouts whose framework states its own world size, grid or step inside the file. Reads
`data.pkl` alone, inertly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from rtj_sidecar.checkpoints.formats import stub, zips
from rtj_sidecar.checkpoints.formats.base import FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.inert import Stub
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import FileEntry

SOMETHING = "something"
"""Stands for a value that is no plain one (a dict, a tensor, an object): it is there."""
_MOST_TEXT = 500


def fields_of(reader: Reader, entry: FileEntry, *, keep: Iterable[str]) -> Mapping[str, object]:
    """`keep`: dotted paths (`args.tensor_model_parallel_size`) through dicts and attributes.

    A path that is not there is absent; None, numbers, texts, and lists of whole numbers come as
    they are; all else as SOMETHING. Empty where the file is gone, no torch zip, or broken: its
    container gate says so.
    """
    paths = tuple(keep)
    return facts_of(reader, entry, name=("fields", paths), pick=lambda value: _picked(value, paths))


def facts_of(
    reader: Reader,
    entry: FileEntry,
    *,
    name: Hashable,
    pick: Callable[[Any], Mapping[str, object]],
) -> Mapping[str, object]:
    """What `pick` takes from the inert value of `data.pkl`, as plain JSON values; kept under `name`
    for each state of the file. Empty where `fields_of` is."""

    def look(window: Window, _: bytearray) -> FileCheck:
        archive = zips.read_archive(window, caps=reader.caps)
        for member in archive.members:
            if member.name.endswith("/data.pkl"):
                content = zips.read_member(window, archive, member, limit=reader.caps.pickle_bytes)
                value = stub.load(content, caps=reader.caps)
                return FileCheck("fields", None, "", facts=pick(value))
        raise MalformedError("it has no data.pkl")

    try:
        return reader.ask(entry, name, look).facts
    except (OSError, UnsafePathError):
        return {}


def _picked(value: Any, paths: Iterable[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in paths:
        inner: Any = value
        for name in path.split("."):
            level = inner.state if isinstance(inner, Stub) else inner
            if not isinstance(level, dict) or name not in level:
                break
            inner = level[name]
        else:
            found[path] = _plain(inner)
    return found


def _plain(value: Any) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value[:_MOST_TEXT]
    if isinstance(value, list) and all(type(item) is int for item in value[:1000]):
        return value[:1000]
    return SOMETHING
