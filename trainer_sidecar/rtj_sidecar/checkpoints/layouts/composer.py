"""MosaicML Composer: `ep{E}-ba{B}-rank{r}.pt`, links `latest-rank{r}.pt`, and `ep{E}-ba{B}/` with
the DCP files of FSDP.

Only rank 0 writes a file unless the state is sharded, so that a `rank0` alone is whole. The link is
removed and made again: `autoresume` begins anew without an error where a kill fell in between, so
it is stated for every save. Two things prove that other ranks wrote: a link that leads to a file of
the save, made after that file; and parts of sharded tensors in a file, which releases for torch 1
wrote, each rank its own (`checkpoint._save_checkpoint`, mosaicml 0.16.4). `rng` has one state for
each rank, and so says how many there were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rtj_sidecar.checkpoints.formats.facts import whole_number
from rtj_sidecar.checkpoints.formats.inert import Stub
from rtj_sidecar.checkpoints.layouts import common, dcp_rules, nested
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.dcp import DcpLayout
from rtj_sidecar.checkpoints.layouts.fields import facts_of, fields_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.layouts.guides import composer as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary, numbers_in, rank_in
from rtj_sidecar.checkpoints.layouts.stated import POINTERS, beside, link_pointer
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

_FILE = re.compile(r"^ep(\d+)-ba(\d+)(?:-rank(\d+))?\.pt$")
_DIRECTORY = re.compile(r"^ep(\d+)-ba(\d+)$")
_TIME = "state.timestamp.Timestamp."
_FIELDS = (f"{_TIME}epoch", f"{_TIME}batch", f"{_TIME}sample", "rng")
_FIELDS += ("state.optimizers", "state.schedulers", "state.dataset_state.train")
_LINKED = "linked_but_missing"
_WORLD, _SHARDED = "world_size", "sharded"
_PARTS = (".ShardedTensor", ".DTensor")
_DCP = DcpLayout()


class ComposerLayout:
    """`layout: composer`."""

    name = "composer"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        groups: dict[str, list[FileEntry]] = {}
        for entry in listing.files:
            if entry.path.endswith(".pt") and _is_ours(entry, reader):
                groups.setdefault(_group_of(entry.path), []).append(entry)
        missing = _linked_but_missing(listing)
        saves = (
            _save(found, reader, missing=missing.get(group, ())) for group, found in groups.items()
        )
        return (*saves, *_sharded(listing, reader))

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        if nested.has_dcp([entry.path for entry in save.files]):
            return dcp_rules.gates(save.files, reader=reader, expect=expect)
        return (
            common.no_marker("Composer"),
            common.container_gate(save, reader),
            _linked_gate(save, expect)
            or _set_gate([entry.path for entry in save.files], expect, ranks=_wrote(save.facts)),
        )

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = sorted(common.union_of(parts))
        if nested.has_dcp(union):
            return dcp_rules.union_gate(parts)
        wrote = max((_wrote(part.facts) for part in parts), default=0)
        return _set_gate(union, replace(expect, whole=True), ranks=wrote)


def _is_ours(entry: FileEntry, reader: Reader) -> bool:
    if is_temporary(entry.path):
        return False
    if _FILE.match(name_of(entry.path)):
        return True
    peek = common.peek_of(reader, entry)
    keys = peek.facts.get("keys") if peek is not None else None
    if not isinstance(keys, list) or not {"state", "rng"} <= set(keys):
        return False
    return bool(fields_of(reader, entry, keep=(f"{_TIME}batch",)))


def _group_of(path: str) -> str:
    """Equal for the files that the ranks wrote of one save."""
    named = _FILE.match(name_of(path))
    stem = f"ep{int(named[1])}-ba{int(named[2])}" if named else name_of(path)
    return f"{parent_of(path)}/{stem}"


def _linked_but_missing(listing: Listing) -> dict[str, list[str]]:
    """Group -> its files that a link leads to and that are not there.

    A rank makes its link after its file (`CheckpointSaver._save_checkpoint`).
    """
    there = {entry.path for entry in listing.files}
    found: dict[str, list[str]] = {}
    for link in listing.links:
        path = link.resolved
        if path is not None and path not in there and _FILE.match(name_of(path)):
            found.setdefault(_group_of(path), []).append(path)
    return found


def _save(found: list[FileEntry], reader: Reader, *, missing: Sequence[str]) -> FoundSave:
    first = min(found, key=lambda entry: (rank_in(name_of(entry.path)) or 0, entry.path))
    named = _FILE.match(name_of(first.path))
    told = fields_of(reader, first, keep=_FIELDS)
    step, epoch = whole_number(told.get(f"{_TIME}batch")), whole_number(told.get(f"{_TIME}epoch"))
    if named and step is None:
        epoch, step = int(named[1][:18]), int(named[2][:18])
    numbers = numbers_in(name_of(first.path))
    facts: dict[str, object] = {"unit": "step", **({HAS: _held(told)} if told else {})}
    facts |= facts_of(reader, first, name="composer-ranks", pick=_ranks)
    if named:
        facts[POINTERS] = [_latest(entry) for entry in found]
    if missing:
        facts[_LINKED] = sorted(missing)
    return FoundSave(
        root_key=first.path,
        layout=ComposerLayout.name,
        files=tuple(found),
        step=step,
        epoch=epoch,
        full_state=bool(told.get("state.optimizers")) if told else None,
        reused_path=not (named or numbers.sure),
        facts=facts,
    )


def _latest(entry: FileEntry) -> dict[str, object]:
    rank = rank_in(name_of(entry.path)) or 0
    return link_pointer(beside(entry.path, f"latest-rank{rank}.pt"), name_of(entry.path))


def _held(told: Mapping[str, object]) -> dict[str, bool]:
    return {
        "optimizer": bool(told.get("state.optimizers")),
        "scheduler": bool(told.get("state.schedulers")),
        "rng": bool(told.get("rng")),
        "loader": bool(told.get("state.dataset_state.train")),
    }


def _linked_gate(save: FoundSave, expect: Expectations) -> GateResult | None:
    """The set gate where a link tells of a file that is gone; None where none does."""
    missing = save.facts.get(_LINKED)
    if not expect.whole or not isinstance(missing, list):
        return None
    detail = f"{missing[0]}: not there, although a link leads to it"
    return GateResult(Gate.SET, False, detail, Reason.FILES_MISSING)


def _ranks(value: Any) -> dict[str, object]:
    """How many processes there were, and whether this file holds only one's part of the state."""
    top = value if isinstance(value, dict) else {}
    rng, state = top.get("rng"), top.get("state")
    model = state.get("model") if isinstance(state, dict) else None
    tensors = model if isinstance(model, dict) else {}
    found: dict[str, object] = {_WORLD: len(rng)} if isinstance(rng, list) and rng else {}
    if any(_is_part(tensor) or "flat_param" in str(name) for name, tensor in tensors.items()):
        found[_SHARDED] = True
    return found


def _is_part(tensor: Any) -> bool:
    """Of a tensor that lies over several processes: by its class, or the class that it is rebuilt
    as (`torch._tensor._rebuild_from_type_v2`)."""
    if not isinstance(tensor, Stub):
        return False
    classes = [tensor, *(arg for arg in tensor.args[:2] if isinstance(arg, Stub))]
    return any(found.name.endswith(_PARTS) for found in classes)


def _wrote(facts: Mapping[str, object]) -> int:
    """Ranks that each wrote a file, where the content proves it; 0 where it does not."""
    world = facts.get(_WORLD)
    return world if facts.get(_SHARDED) and isinstance(world, int) else 0


def _set_gate(paths: Sequence[str], expect: Expectations, *, ranks: int) -> GateResult:
    """Every rank's file once another than rank 0 has one, or one holds a part of sharded tensors;
    else rank 0's alone is whole. `ranks`: see `_wrote`."""
    there = {rank for path in paths if (rank := rank_in(name_of(path))) is not None}
    if not expect.whole or (there <= {0} and not ranks):
        return GateResult(Gate.SET, None, "rank 0 writes for all, unless the state is sharded")
    for rank in range(max(expect.demanded or 0, ranks, *(seen + 1 for seen in there))):
        if rank not in there:
            detail = f"{min(paths)}: no file of rank {rank}"
            return GateResult(Gate.SET, False, detail, Reason.FILES_MISSING)
    return GateResult(Gate.SET, True, f"files of all {len(there)} ranks")


def _sharded(listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
    """`ep{E}-ba{B}/` with DCP files inside."""
    inside = tuple(
        entry
        for entry in listing.files
        if any(_DIRECTORY.match(part) for part in entry.path.split("/")[:-1])
    )
    found = []
    for save in _DCP.recognise(listing=Listing(inside), reader=reader) if inside else ():
        named = _DIRECTORY.match(name_of(save.root_key))
        if named:
            latest = link_pointer(beside(save.root_key, "latest-rank0.pt"), name_of(save.root_key))
            found.append(
                replace(
                    save,
                    layout=ComposerLayout.name,
                    step=int(named[2][:18]),
                    epoch=int(named[1][:18]),
                    facts={**save.facts, POINTERS: [latest], "unit": "step"},
                )
            )
    return tuple(found)
