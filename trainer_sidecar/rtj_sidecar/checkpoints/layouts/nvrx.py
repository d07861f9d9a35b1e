"""Local checkpoints of nvidia-resiliency-ext: `<session>/<rank>/iter_0000010_<rank>_local.pt`.

Each rank writes its own to `.dirty` and renames it; with replication its directory also holds those
of its peers. An iteration counts where every rank's file is whole somewhere. Names:
nvidia_resiliency_ext/checkpointing/local/ckpt_managers/local_manager.py, 0.4.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.layouts.guides import nvrx as guides
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

_FILE = re.compile(r"^iter_(\d{7})_(\d+)_local(\.dirty)?\.pt$")


class NvrxLocalLayout:
    """`layout: nvrx-local`."""

    name = "nvrx-local"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        by_iteration: dict[tuple[str, int], list[FileEntry]] = {}
        for entry in listing.files:
            found = _FILE.match(name_of(entry.path))
            if found and name_of(parent_of(entry.path)).isdecimal():
                session = parent_of(parent_of(entry.path))
                by_iteration.setdefault((session, int(found.group(1))), []).append(entry)
        return tuple(
            FoundSave(
                root_key=min(entry.path for entry in found),
                layout=self.name,
                files=tuple(sorted(found, key=lambda entry: entry.path)),
                step=step,
                facts={"unit": "step"},
            )
            for (_, step), found in sorted(by_iteration.items())
        )

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        clean, dirty = _ranks([entry.path for entry in save.files])
        marker = GateResult(Gate.MARKER, True, "renamed: no rank's file is `.dirty` alone")
        if left := sorted(dirty - clean):
            detail = f"{save.root_key}: rank {left[0]} has only a .dirty file: it did not finish"
            marker = common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
        whole = [entry for entry in save.files if not _is_dirty(entry.path)]
        container = common.container_result((e, common.check_of(reader, e)) for e in whole)
        if not expect.whole:
            told = GateResult(Gate.SET, None, "the other ranks' files are on their disks")
            return marker, container, told
        return marker, container, _set_gate(clean, expect.demanded)

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        found = _set_gate(_ranks(common.union_of(parts))[0], expect.demanded)
        is_guess = found.passed is True and expect.demanded is None
        return replace(found, passed=None) if is_guess else found


def _is_dirty(path: str) -> bool:
    found = _FILE.match(name_of(path))
    return found is not None and found.group(3) is not None


def _ranks(paths: Collection[str]) -> tuple[set[int], set[int]]:
    """Ranks whose file is whole somewhere, and ranks with a `.dirty` one."""
    clean: set[int] = set()
    dirty: set[int] = set()
    for path in paths:
        if found := _FILE.match(name_of(path)):
            (dirty if found.group(3) else clean).add(int(found.group(2)))
    return clean, dirty


def _set_gate(clean: Collection[int], world_size: int | None) -> GateResult:
    for rank in range(max(world_size or 0, max(clean, default=-1) + 1)):
        if rank not in clean:
            detail = f"the file of rank {rank} is missing, as its own and as a replica"
            return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    if not clean:
        return common.failed(Gate.SET, Reason.FILES_MISSING, "no rank's file is whole")
    return GateResult(Gate.SET, True, f"the files of all {len(clean)} ranks")
