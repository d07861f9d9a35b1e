"""PyTorch Lightning: `epoch=E-step=S.ckpt` files, `last.ckpt`, `hpc_ckpt_N.ckpt`, and the
directories of a sharded strategy (`X.ckpt/` with DCP files and `meta.pt`, which is written last).

Each file is a save of its own, also `…-v1.ckpt` beside one of the same step. `ckpt_path="last"`
takes the newest file of the name `last`, and begins anew without an error where there is none: it
is rebuilt, as the link or the copy that it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rtj_sidecar.checkpoints.formats.facts import number, whole_number
from rtj_sidecar.checkpoints.layouts import common, dcp_rules, nested
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.dcp import DcpLayout
from rtj_sidecar.checkpoints.layouts.fields import fields_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.layouts.guides import lightning as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary, numbers_in
from rtj_sidecar.checkpoints.layouts.stated import POINTERS, copy_pointer, link_pointer
from rtj_sidecar.checkpoints.layouts.torchfile import with_aliases
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

META = "meta.pt"
VERSION = "pytorch-lightning_version"
_OWN_NAME = re.compile(
    r"^(.*[-_])?(epoch|step)=\d+.*\.ckpt$|^last(-v\d+)?\.ckpt$|^hpc_ckpt_\d+\.ckpt$"
)
_LAST = re.compile(r"(^|[-_=])last(-v\d+)?\.ckpt$")
_LOSS = re.compile(r"(?:^|[-_/])(?:val_|train_|valid_|eval_)?loss=(\d+(?:\.\d+)?(?:e-?\d+)?)")
_LOADER = "loops.fit_loop.state_dict.combined_loader"
_FIELDS = ("global_step", "epoch", "optimizer_states", "lr_schedulers", _LOADER, VERSION)
_DCP = DcpLayout()


class LightningLayout:
    """`layout: lightning`."""

    name = "lightning"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        sharded = _sharded(listing, reader)
        taken = tuple(f"{save.root_key}/" for save in sharded)
        numbered, fixed = [], []
        for entry in listing.files:
            name = name_of(entry.path)
            if not name.endswith(".ckpt") or is_temporary(entry.path):
                continue
            if not entry.path.startswith(taken) and (save := _file(entry, reader)) is not None:
                (numbered if numbers_in(name) else fixed).append(save)
        saves = (*sharded, *with_aliases(numbered, fixed))
        return tuple(_with_last(save, listing) for save in saves)

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        if not _is_directory(save):
            return (
                common.no_marker("Lightning"),
                common.container_gate(save, reader),
                common.set_gate(save, expect=expect),
            )
        marker, container, whole = dcp_rules.gates(save.files, reader=reader, expect=expect)
        meta = f"{save.root_key}/{META}"
        if marker.passed and meta not in {entry.path for entry in save.files}:
            detail = f"{meta} is missing, it is written last: the save did not finish"
            marker = common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
        return marker, container, whole

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = common.union_of(parts)
        if not nested.has_dcp(sorted(union)):
            return common.union_by_history(parts, expect=expect)
        if not any(name_of(path) == META for path in union):
            detail = f"no rank has {META}: the save did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        return dcp_rules.union_gate(parts)


def _is_directory(save: FoundSave) -> bool:
    return all(entry.path != save.root_key for entry in save.files)


def _file(entry: FileEntry, reader: Reader) -> FoundSave | None:
    name = name_of(entry.path)
    peek = common.peek_of(reader, entry)
    keys = peek.facts.get("keys") if peek is not None else None
    if isinstance(keys, list) and VERSION not in keys:
        return None
    if not isinstance(keys, list) and not _OWN_NAME.match(name):
        return None
    # Without keys it is torn, or still being written: its name is all that is known.
    told = fields_of(reader, entry, keep=_FIELDS) if isinstance(keys, list) else {}
    numbers = numbers_in(name)
    step, epoch = whole_number(told.get("global_step")), whole_number(told.get("epoch"))
    return FoundSave(
        root_key=entry.path,
        layout=LightningLayout.name,
        files=(entry,),
        step=numbers.step if step is None else step,
        epoch=numbers.epoch if epoch is None else epoch,
        loss=_loss_in(entry.path),
        full_state=bool(told.get("optimizer_states")) if told else None,
        reused_path=not numbers.sure,
        facts={"unit": "step", **({"keys": keys, HAS: _held(told)} if told else {})},
    )


def _loss_in(path: str) -> float | None:
    """From the name alone: the score that the callback keeps in the file is a tensor."""
    named = _LOSS.search(path)
    return number(float(named.group(1))) if named else None


def _held(told: Mapping[str, object]) -> dict[str, bool]:
    """Lightning saves no RNG state; the position in the data only of stateful data loaders."""
    return {
        "optimizer": bool(told.get("optimizer_states")),
        "scheduler": bool(told.get("lr_schedulers")),
        "rng": False,
        "loader": bool(told.get(_LOADER)),
    }


def _sharded(listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
    """Directories with DCP files that Lightning wrote, by `meta.pt` or by their names."""
    files = listing.files
    roots = {
        parent_of(entry.path)
        for entry in files
        if name_of(entry.path) == dcp_rules.MARKER or dcp_rules.SHARD.match(name_of(entry.path))
    }
    metas = {entry.path: entry for entry in files if name_of(entry.path) == META}
    ours = {
        root
        for root in roots
        if root != "." and (f"{root}/{META}" in metas or _OWN_NAME.match(name_of(root)))
    }
    if not ours:
        return ()
    inside = tuple(e for e in files if any(e.path.startswith(f"{root}/") for root in ours))
    found = []
    for save in _DCP.recognise(listing=Listing(inside), reader=reader):
        if save.root_key not in ours:
            continue
        meta = metas.get(f"{save.root_key}/{META}")
        told = fields_of(reader, meta, keep=_FIELDS) if meta is not None else {}
        step, epoch = whole_number(told.get("global_step")), whole_number(told.get("epoch"))
        # The optimizer's state lies in the shards, not in `meta.pt`.
        held = {HAS: {**_held(told), "optimizer": True}} if told and save.full_state else {}
        found.append(
            replace(
                save,
                layout=LightningLayout.name,
                step=save.step if step is None else step,
                epoch=save.epoch if epoch is None else epoch,
                facts={**save.facts, **held, "unit": "step"},
            )
        )
    return tuple(found)


def _with_last(save: FoundSave, listing: Listing) -> FoundSave:
    """States `last.ckpt` beside it as the link or copy that stands there now."""
    if any(_LAST.search(name_of(entry.path)) for entry in save.all_files):
        return save  # it brings its own
    parent = parent_of(save.root_key)
    own = {entry.path for entry in save.all_files}
    pointers = []
    for link in listing.links:
        if parent_of(link.path) == parent and _LAST.search(name_of(link.path)):
            pointers.append(link_pointer(link.path, name_of(save.root_key)))
    if not _is_directory(save):
        for entry in listing.files:
            beside = parent_of(entry.path) == parent and entry.path not in own
            if beside and _LAST.search(name_of(entry.path)):
                pointers.append(copy_pointer(entry.path, name_of(save.root_key)))
    # `last-v1.ckpt` stands beside `last.ckpt` after a restart: one of them is enough.
    first = sorted(pointers, key=lambda told: "-v" in str(told["path"]).rpartition("last")[2])[:1]
    return replace(save, facts={**save.facts, POINTERS: first}) if first else save
