"""Pointers that a framework needs to find a save, stated by its layout. Pure.

A tracker (`latest`, `latest_checkpointed_iteration.txt`) may be written after the save was shipped,
or never; without it the framework begins from scratch. `FoundSave.facts["rebuild"]` holds what a
restore of the save must write, as plain JSON: `{"path", "kind", "value"}`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rtj_sidecar.checkpoints.types import Pointer, PointerKind

POINTERS = "rebuild"


def text_pointer(path: str, value: str) -> dict[str, object]:
    """A small text file with exactly this content."""
    return {"path": path, "kind": PointerKind.TEXT.value, "value": value}


def link_pointer(path: str, target: str) -> dict[str, object]:
    """A symbolic link; `target` as it stands in it, relative."""
    return {"path": path, "kind": PointerKind.LINK.value, "value": target}


def copy_pointer(path: str, target: str) -> dict[str, object]:
    """A copy of a file of the save under a fixed name; `target` relative to the copy."""
    return {"path": path, "kind": PointerKind.COPY.value, "value": target}


def beside(root_key: str, name: str) -> str:
    """The path of `name` in the directory that holds the save."""
    parent, slash, _ = root_key.rpartition("/")
    return f"{parent}{slash}{name}"


def to_rebuild(facts: Mapping[str, object], *, root_key: str) -> tuple[Pointer, ...]:
    """What the facts of a save state. A kind that a newer version wrote is left out."""
    told = facts.get(POINTERS)
    found = []
    for item in told if isinstance(told, list) else ():
        fields = item if isinstance(item, dict) else {}
        path, kind, value = (fields.get(name) for name in ("path", "kind", "value"))
        known = isinstance(kind, str) and kind in {known.value for known in PointerKind}
        if known and isinstance(path, str) and isinstance(value, str):
            found.append(Pointer(path, PointerKind(kind), value, root_key))
    return tuple(found)
