"""DCP's HuggingFaceStorageWriter: `sharded/shard-*.safetensors`, consolidated files, the index.

Order: shards of all ranks, then `model-0000i-of-0000n.safetensors` (header first, body filled
later), then `model.safetensors.index.json`. Weights only. Without consolidation the shards lie in
the directory itself and nothing is written last. Names: torch/distributed/checkpoint/hf_storage.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rtj_sidecar.checkpoints.layouts import common, nested
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of, owner_directory, parent_of
from rtj_sidecar.checkpoints.layouts.guides import dcp_hf as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary, numbers_in
from rtj_sidecar.checkpoints.layouts.torchfile import labels
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
    Reason,
)

INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"^shard-(\d{5,})-model-(\d{5})-of-(\d{5})\.safetensors$")
_WEIGHTS_ONLY = dict.fromkeys(("optimizer", "scheduler", "rng", "loader"), False)


class DcpHuggingFaceLayout:
    """`layout: dcp-hf`."""

    name = "dcp-hf"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        roots = {
            root
            for entry in listing.files
            if _SHARD.match(name_of(entry.path)) and (root := _root(entry.path)) is not None
        }
        by_root: dict[str, list[FileEntry]] = {root: [] for root in roots}
        for entry in listing.files if roots else ():
            above = parent_of(entry.path)
            while above not in roots and "/" in above:
                above = parent_of(above)
            if above in roots and not is_temporary(entry.path):
                by_root[above].append(entry)
        return tuple(_save(root, found) for root, found in sorted(by_root.items()))

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        files = {entry.path: entry for entry in save.files}
        index = next((path for path in files if name_of(path) == INDEX), None)
        if index is None and _consolidates(files) and expect.whole:
            detail = f"{save.root_key}: {INDEX} is missing, it is written last"
            why = nested.NOT_LOOKED_AT
            return (
                common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail),
                GateResult(Gate.CONTAINER, None, why),
                GateResult(Gate.SET, None, why),
            )
        marker = common.no_marker("the writer without consolidation")
        if index is not None:
            marker = GateResult(Gate.MARKER, True, "the index, written last, is there")
        container = common.container_gate(save, reader)
        if container.passed is False:
            return marker, container, GateResult(Gate.SET, None, nested.NOT_LOOKED_AT)
        world_size = expect.demanded if expect.whole else None
        if expect.whole and (gap := _missing(files, world_size)):
            return marker, container, common.failed(Gate.SET, Reason.FILES_MISSING, gap)
        if index is not None and (problem := common.index_problem(reader, files, files[index])):
            return marker, container, common.failed(Gate.SET, *problem)
        count = sum(1 for path in files if _SHARD.match(name_of(path)))
        told = True if expect.whole else None
        return marker, container, GateResult(Gate.SET, told, f"{count} shards, no rank left out")

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = common.union_of(parts)
        if _consolidates(union) and not any(name_of(path) == INDEX for path in union):
            detail = f"no rank has {INDEX}, it is written last"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        if gap := _missing(union, expect.demanded):
            return common.failed(Gate.SET, Reason.FILES_MISSING, gap)
        counted = True if expect.demanded is not None else None
        return GateResult(Gate.SET, counted, f"{len(union)} files")


def _root(path: str) -> str | None:
    """The numbered directory at or above the shards; none: weights that were put out, no save."""
    directory = parent_of(path)
    if directory == ".":
        return None
    owner = owner_directory(f"{directory}/x")
    return owner[0] if owner else None


def _consolidates(paths: Collection[str]) -> bool:
    return any(_SHARD.match(name_of(p)) and name_of(parent_of(p)) == "sharded" for p in paths)


def _missing(paths: Collection[str], world_size: int | None) -> str | None:
    """A rank without a shard. Ranks count from 1, and which of the files a rank has part of, the
    names do not tell."""
    shards = [(p, m) for p in paths if (m := _SHARD.match(name_of(p)))]
    ranks = {int(m.group(1)) for _, m in shards}
    for rank in range(1, max(world_size or 0, max(ranks, default=0)) + 1):
        if rank not in ranks:
            return f"{parent_of(shards[0][0])}/shard-{rank:05d}-model-*.safetensors is missing"
    return None


def _save(root: str, found: list[FileEntry]) -> FoundSave:
    numbers = numbers_in(name_of(root))
    step, epoch, unit = labels(numbers, {})
    facts: dict[str, object] = {HAS: dict(_WEIGHTS_ONLY)}
    if unit is not None:
        facts["unit"] = unit
    return FoundSave(
        root_key=root,
        layout=DcpHuggingFaceLayout.name,
        files=tuple(sorted(found, key=lambda entry: entry.path)),
        step=step,
        epoch=epoch,
        full_state=False,
        reused_path=not numbers.sure,
        facts=facts,
    )
