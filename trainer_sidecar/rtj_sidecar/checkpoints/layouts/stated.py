"""Pointers that a framework needs to find a save, stated by its layout. Pure.

A tracker (`latest`, `latest_checkpointed_iteration.txt`) may be written after the save was shipped,
or never; without it the framework begins from scratch. `FoundSave.facts["pointers"]` holds what a
restore of the save must write, as plain JSON: `{"path", "kind", "value"}`.
"""

from __future__ import annotations

from rtj_sidecar.checkpoints.types import PointerKind

POINTERS = "pointers"


def text_pointer(path: str, value: str) -> dict[str, object]:
    """A small text file with exactly this content."""
    return {"path": path, "kind": PointerKind.TEXT.value, "value": value}


def beside(root_key: str, name: str) -> str:
    """The path of `name` in the directory that holds the save."""
    parent, slash, _ = root_key.rpartition("/")
    return f"{parent}{slash}{name}"
