"""Link or copy: how a save has to be pinned, from what happened to its inodes before. Pure.

A path that kept its inode from one generation to the next is overwritten in place, and a hard link
to it would change with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rtj_sidecar.checkpoints.types import FoundSave, Snapshot


class PinHow(StrEnum):
    LINK = "link"
    COPY = "copy"
    """A reflink where the file system can, else a copy."""


@dataclass(frozen=True, slots=True)
class InodeHistory:
    """For each path its last settled state, and how it was replaced since, once that is known."""

    last: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    in_place: frozenset[str] = frozenset()
    renamed: frozenset[str] = frozenset()


def next_history(*, before: InodeHistory, snapshot: Snapshot) -> InodeHistory:
    """The history after another snapshot. A path once overwritten in place is never trusted."""
    last, in_place, renamed = dict(before.last), set(before.in_place), set(before.renamed)
    for entry in snapshot.files:
        state = (entry.inode, entry.size, entry.mtime_ns)
        known = last.get(entry.path)
        if known is not None and known != state:
            (in_place if known[0] == entry.inode else renamed).add(entry.path)
        last[entry.path] = state
    present = {entry.path for entry in snapshot.files}
    # Step-numbered names come and go for ever; a name that is gone says nothing any more, unless
    # it was caught being overwritten.
    last = {path: state for path, state in last.items() if path in present}
    return InodeHistory(last, frozenset(in_place), frozenset(renamed & present))


def how_to_pin(*, save: FoundSave, history: InodeHistory) -> dict[str, PinHow]:
    """Link or copy, for each path. The first time a file of a reused name is copied: also one that
    lies beside the numbered directory which is the save."""
    aliases = {entry.path for entry in save.aliases}
    directory = save.root_key != "." and all(e.path != save.root_key for e in save.files)
    plan = {}
    for entry in save.all_files:
        outside = directory and not entry.path.startswith(f"{save.root_key}/")
        reused = save.reused_path or outside or entry.path in aliases
        trusted = entry.path in history.renamed or not reused
        link = trusted and entry.path not in history.in_place
        plan[entry.path] = PinHow.LINK if link else PinHow.COPY
    return plan
