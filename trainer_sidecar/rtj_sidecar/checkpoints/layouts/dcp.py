"""PyTorch Distributed Checkpoint directories: `.metadata` and `__<rank>_<i>.distcp`.

A numbered directory is one save with all DCP directories in it. The rules are `dcp_rules`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rtj_sidecar.checkpoints.layouts import dcp_rules as rules
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.dcp_facts import read_facts
from rtj_sidecar.checkpoints.layouts.dcp_rules import MARKER, SHARD
from rtj_sidecar.checkpoints.layouts.grouping import name_of, owner_directory, parent_of
from rtj_sidecar.checkpoints.layouts.guides import dcp as guides
from rtj_sidecar.checkpoints.layouts.names import NO_NUMBERS, is_temporary, numbers_in
from rtj_sidecar.checkpoints.layouts.torchfile import labels
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    GateResult,
    PartFiles,
)


class DcpLayout:
    """`layout: dcp`."""

    name = "dcp"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        roots: dict[str, list[FileEntry]] = {}
        inner = {
            parent_of(entry.path)
            for entry in listing.files
            if name_of(entry.path) == MARKER or SHARD.match(name_of(entry.path))
        }
        homes = {_root_of(directory) for directory in inner}
        for entry in listing.files:
            if (root := _home(entry.path, homes)) is not None and not is_temporary(entry.path):
                roots.setdefault(root, []).append(entry)
        return tuple(_save(root, found, reader) for root, found in sorted(roots.items()))

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        return rules.gates(save.files, reader=reader, expect=expect)

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        return rules.union_gate(parts)


def _root_of(directory: str) -> str:
    """The save's directory: the numbered one at or above the inner directory, else itself."""
    if directory == "." or numbers_in(name_of(directory)):
        return directory
    owner = owner_directory(f"{directory}/x")
    return owner[0] if owner else directory


def _home(path: str, roots: Collection[str]) -> str | None:
    """The root of the save that a file belongs to. A save in `.` owns only its own top level."""
    directory = parent_of(path)
    if directory == ".":
        name = name_of(path)
        return "." if "." in roots and (name == MARKER or SHARD.match(name)) else None
    while directory:
        if directory in roots:
            return directory
        directory = directory.rpartition("/")[0]
    return None


def _save(root: str, found: list[FileEntry], reader: Reader) -> FoundSave:
    numbers = numbers_in(name_of(root)) if root != "." else NO_NUMBERS
    told = read_facts(found, reader)
    step, epoch, unit = labels(numbers, told.numbers)
    loss = told.numbers.get("loss")
    facts = dict(told.facts)
    if unit:
        facts["unit"] = unit
    return FoundSave(
        root_key=root,
        layout=DcpLayout.name,
        files=told.files,
        step=step,
        epoch=epoch,
        loss=float(loss) if isinstance(loss, int | float) else None,
        full_state=told.full_state,
        reused_path=not numbers.sure,
        facts=facts,
    )
