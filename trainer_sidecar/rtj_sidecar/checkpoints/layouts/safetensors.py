"""safetensors, single or sharded, in a numbered directory or with a number in the file's name.

Weights only, never a full resume. Sharded sets are committed by `*.safetensors.index.json`, which
is written last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import group, name_of
from rtj_sidecar.checkpoints.layouts.guides import safetensors as guides
from rtj_sidecar.checkpoints.layouts.torchfile import labels
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS, parts_named
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
    Reason,
)

INDEX = ".safetensors.index.json"
_SHARD = re.compile(r"^(.*)-(\d{5})-of-(\d{5})(\.safetensors)$")


class SafetensorsLayout:
    """`layout: safetensors`."""

    name = "safetensors"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        def is_seed(entry: FileEntry) -> bool:
            return entry.path.endswith((".safetensors", INDEX))

        saves = []
        for found in group(listing.files, is_seed=is_seed):
            if not found.numbers:
                continue  # without a step it is an output, not a save to resume from
            step, epoch, unit = labels(found.numbers, {})
            optimizer = any(
                name_of(entry.path).lower().startswith("optim") for entry in found.files
            )
            saves.append(
                FoundSave(
                    root_key=found.root,
                    layout=self.name,
                    files=found.files,
                    step=step,
                    epoch=epoch,
                    full_state=optimizer,
                    reused_path=not found.numbers.sure,
                    facts={
                        **({"unit": unit} if unit else {}),
                        HAS: parts_named(
                            [name_of(entry.path) for entry in found.files], optimizer=optimizer
                        ),
                    },
                )
            )
        return tuple(saves)

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        return (
            marker_gate(save),
            common.container_gate(save, reader),
            shard_gate(reader, save, expect=expect),
        )

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = common.union_of(parts)
        if missing := missing_shards(union):
            return common.failed(Gate.SET, Reason.FILES_MISSING, missing)
        return common.union_by_history(parts, expect=expect)


def missing_shards(paths: Sequence[str] | dict[str, int]) -> str | None:
    """What is missing among `X-0000i-of-0000n.safetensors` and their index, by name alone."""
    families: dict[tuple[str, int], set[int]] = {}
    for path in paths:
        if match := _SHARD.match(path):
            key = (match.group(1), int(match.group(3)))
            families.setdefault(key, set()).add(int(match.group(2)))
    for (stem, count), found in sorted(families.items()):
        for number in range(1, count + 1):
            if number not in found:
                return f"{stem}-{number:05d}-of-{count:05d}.safetensors is missing"
        if f"{stem}{INDEX}" not in paths:
            return f"{stem}{INDEX} is missing: it is written last"
    return None


def marker_gate(save: FoundSave) -> GateResult:
    """The index is the commit marker of a sharded set; a single file has none."""
    paths = {entry.path for entry in save.files}
    if any(path.endswith(INDEX) for path in paths):
        return GateResult(Gate.MARKER, True, "the index, written last, is there")
    if any(_SHARD.match(path) for path in paths):
        missing = missing_shards(sorted(paths)) or "the index is missing"
        return common.failed(Gate.MARKER, Reason.MARKER_MISSING, missing)
    return common.no_marker("a single safetensors file")


def shard_gate(reader: Reader, save: FoundSave, *, expect: Expectations) -> GateResult:
    """All that the index names is there and adds up; else what history says."""
    files = {entry.path: entry for entry in save.files}
    if missing := missing_shards(sorted(files)):
        return common.failed(Gate.SET, Reason.FILES_MISSING, missing)
    for path, entry in files.items():
        if path.endswith(INDEX) and (problem := common.index_problem(reader, files, entry)):
            return common.failed(Gate.SET, *problem)
    history = common.set_gate(save, expect=expect)
    if history.passed is None and any(path.endswith(INDEX) for path in files):
        return GateResult(Gate.SET, True, "every shard that the index names")
    return history
