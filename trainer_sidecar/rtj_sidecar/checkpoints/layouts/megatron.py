"""Megatron-LM and Megatron-Core: `iter_0000010/`, distributed (`torch_dist`) or legacy.

`torch_dist`: `common.pt` first, then a DCP directory, `metadata.json` last. `torch_dcp` and
`fsdp_dtensor` are a DCP directory alone. Legacy: one directory for each model-parallel rank, no
marker, and the grid stands in the arguments that each file holds. The tracker beside,
`latest_checkpointed_iteration.txt`, is truncated and written anew after each save: only a hint, and
Megatron exits where it is empty, so it is stated for the restore.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from rtj_sidecar.checkpoints.formats.facts import whole_number
from rtj_sidecar.checkpoints.layouts import common, megatron_grid, nested
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.dcp_facts import read_facts
from rtj_sidecar.checkpoints.layouts.dcp_rules import MARKER as DCP_MARKER
from rtj_sidecar.checkpoints.layouts.fields import SOMETHING, fields_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.layouts.guides import megatron as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary
from rtj_sidecar.checkpoints.layouts.stated import POINTERS, beside, text_pointer
from rtj_sidecar.checkpoints.paths import UnsafePathError
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

TRACKER = "latest_checkpointed_iteration.txt"
MARKER = "metadata.json"
COMMON = "common.pt"
_DIRECTORY = re.compile(r"^(?:iter_(\d{7,18})|release)$")
_STATE: tuple[str, ...] = (
    "iteration",
    "args.consumed_train_samples",
    "args.world_size",
    "optimizer",
)
_STATE += (
    "args.consumed_train_samples",
    "opt_param_scheduler",
    "rng_state",
    *megatron_grid.ARGUMENTS,
)


class MegatronLayout:
    """`layout: megatron`."""

    name = "megatron"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        roots: dict[str, list[FileEntry]] = {}
        for entry in listing.files:
            if (root := _root(entry.path)) is not None and not is_temporary(entry.path):
                roots.setdefault(root, []).append(entry)
        return tuple(
            _save(root, found, reader)
            for root, found in sorted(roots.items())
            if _is_ours({entry.path[len(root) + 1 :]: entry for entry in found}, reader)
        )

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        files = {entry.path[len(save.root_key) + 1 :]: entry for entry in save.files}
        if megatron_grid.is_legacy(files):
            marker = common.no_marker("the legacy format")
            container = common.container_gate(save, reader)
            if container.passed is False:
                return marker, container, GateResult(Gate.SET, None, nested.NOT_LOOKED_AT)
            told = _told(files, reader)
            return marker, container, _legacy_set(save.root_key, files, told, whole=expect.whole)
        marker = _marker_gate(save.root_key, files, reader, expect)
        if marker.passed is False:
            why = nested.NOT_LOOKED_AT
            return marker, GateResult(Gate.CONTAINER, None, why), GateResult(Gate.SET, None, why)
        inner, container, whole = nested.gates(save, reader=reader, expect=expect)
        if inner is not None and inner.passed is False:
            return inner, container, GateResult(Gate.SET, None, nested.NOT_LOOKED_AT)
        if marker.passed is None and inner is not None:
            marker = inner
        if whole is not None and whole.passed is False:
            return marker, container, whole
        if COMMON not in files and MARKER in files and expect.whole:
            detail = f"{save.root_key}/{COMMON} is missing: arguments and schedulers are in it"
            return marker, container, common.failed(Gate.SET, Reason.FILES_MISSING, detail)
        return marker, container, whole or GateResult(Gate.SET, None, "nothing says what is in it")

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = common.union_of(parts)
        root = next((found for path in union if (found := _root(path)) is not None), "")
        inner = [path.removeprefix(f"{root}/") for path in union]
        if megatron_grid.is_legacy(inner):
            told: dict[str, object] = {}
            for part in parts:
                own = part.facts.get("grid")
                told |= own if isinstance(own, dict) else {}
            return _legacy_set(root, inner, told, whole=True)
        if MARKER not in inner and (COMMON in inner or DCP_MARKER not in inner):
            detail = f"no rank has {MARKER}: the save did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        if MARKER in inner and COMMON not in inner:
            return common.failed(Gate.SET, Reason.FILES_MISSING, f"no rank has {COMMON}")
        return nested.union_gate(parts) or GateResult(Gate.SET, None, f"{len(union)} files")


def _root(path: str) -> str | None:
    parts = path.split("/")
    for depth, part in enumerate(parts[:-1]):
        if _DIRECTORY.match(part):
            return "/".join(parts[: depth + 1])
    return None


def _is_ours(inner: Mapping[str, FileEntry], reader: Reader) -> bool:
    if megatron_grid.is_legacy(inner) or COMMON in inner:
        return True
    if nested.has_dcp([path for path in inner if "/" not in path]):
        return True
    entry = inner.get(MARKER)
    if entry is None:
        return False
    # Anybody's directory may have a `metadata.json`, and `release` is a word of every day.
    try:
        told = common.json_of(reader, entry, keep=("sharded_backend",))
    except (OSError, UnsafePathError):
        return False
    return "sharded_backend" in told.facts


def _told(files: Mapping[str, FileEntry], reader: Reader) -> Mapping[str, object]:
    """What the common file, or the first readable model file, says of arguments and state."""
    models = [path for path in sorted(files) if path.endswith(f"/{megatron_grid.MODEL}")]
    for path in [COMMON] if COMMON in files else models:
        if told := fields_of(reader, files[path], keep=_STATE):
            return told
    return {}


def _save(root: str, found: list[FileEntry], reader: Reader) -> FoundSave:
    files = {entry.path[len(root) + 1 :]: entry for entry in found}
    told = _told(files, reader)
    match = _DIRECTORY.match(name_of(root))
    named = int(match.group(1)) if match and match.group(1) else None
    step = named if named is not None else whole_number(told.get("iteration"))
    facts: dict[str, object] = {"unit": "step"}
    kept: tuple[FileEntry, ...] = tuple(found)
    full: bool | None = None
    if megatron_grid.is_legacy(files):
        full = told.get("optimizer") == SOMETHING if told else None
        full = True if any(p.endswith(f"/{megatron_grid.OPTIMIZER}") for p in files) else full
        facts["grid"] = {key: told[key] for key in megatron_grid.ARGUMENTS if key in told}
        if told:
            facts[HAS] = {**_held(told, ()), "optimizer": full is True}
    else:
        inner = read_facts(found, reader)
        kept, full = inner.files, inner.full_state
        facts |= {key: value for key, value in inner.facts.items() if key != HAS}
        if full is not None:
            keys = inner.facts.get("keys")
            names = [str(key) for key in keys] if isinstance(keys, list) else []
            facts[HAS] = {**_held(told, names), "optimizer": full}
    for name, key in (("samples", "consumed_train_samples"), ("world_size", "world_size")):
        if (value := whole_number(told.get(f"args.{key}"))) is not None:
            facts[name] = value
    word = "release" if named is None else str(named)
    facts[POINTERS] = [text_pointer(beside(root, TRACKER), word)]
    return FoundSave(
        root_key=root,
        layout=MegatronLayout.name,
        files=kept,
        step=step,
        full_state=full,
        facts=facts,
    )


def _held(told: Mapping[str, object], keys: Collection[str]) -> dict[str, bool]:
    """Megatron computes the position in its own data from the consumed samples."""
    rng = told.get("rng_state") is not None or parts_named(keys).get("rng") is True
    return {
        "scheduler": told.get("opt_param_scheduler") is not None
        or parts_named(keys).get("scheduler") is True,
        "rng": rng,
        "loader": "args.consumed_train_samples" in told,
    }


def _marker_gate(
    root: str, files: Mapping[str, FileEntry], reader: Reader, expect: Expectations
) -> GateResult:
    entry = files.get(MARKER)
    if entry is None:
        if COMMON not in files and DCP_MARKER in files:
            return GateResult(Gate.MARKER, None, f"a DCP directory alone has no {MARKER}")
        if COMMON not in files and not expect.whole:
            return GateResult(Gate.MARKER, None, f"{root}/{MARKER} is not here; rank 0 writes it")
        detail = f"{root}/{MARKER} is missing: the save did not finish"
        return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
    check = common.json_of(reader, entry, keep=("sharded_backend", "common_backend"))
    if check.passed is False:
        return common.failed(Gate.MARKER, Reason.MARKER_INVALID, check.detail)
    backend = common.plain(check.facts.get("sharded_backend"))
    return GateResult(Gate.MARKER, True, f"{MARKER}, written last, parses ({backend})")


def _legacy_set(
    root: str, inner: Collection[str], told: Mapping[str, object], *, whole: bool
) -> GateResult:
    if not whole:
        return GateResult(Gate.SET, None, "the other ranks' files are on their disks")
    gap = megatron_grid.missing(inner, told)
    if gap is None and megatron_grid.lacks_optimizer(inner, told):
        gap = megatron_grid.OPTIMIZER
    if gap is not None:
        detail = f"{root}/{gap} is missing, the arguments in the save ask for it"
        return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    return GateResult(Gate.SET, True, "the files of the whole grid that the arguments state")
