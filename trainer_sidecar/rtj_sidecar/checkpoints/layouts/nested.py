"""Gates over a directory that may hold DCP and DeepSpeed directories inside, each by its rules."""

from __future__ import annotations

from collections.abc import Sequence

from rtj_sidecar.checkpoints.layouts import common, dcp_rules, deepspeed_rules
from rtj_sidecar.checkpoints.layouts.dcp_facts import read_facts
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
)

NOT_LOOKED_AT = "not looked at: an earlier gate failed"


def has_dcp(paths: Sequence[str]) -> bool:
    """Whether a DCP directory is among the files: its marker or a shard."""
    return any(dcp_rules.SHARD.match(name_of(p)) or name_of(p) == dcp_rules.MARKER for p in paths)


def gates(
    save: FoundSave, *, reader: Reader, expect: Expectations
) -> tuple[GateResult | None, GateResult, GateResult | None]:
    """Marker (of the DCP directories; None without any), container (of all files), and set (of the
    DCP and DeepSpeed directories; None without any)."""
    paths = [entry.path for entry in save.files]
    marker: GateResult | None = None
    whole: GateResult | None = None
    if has_dcp(paths):
        marker, container, whole = dcp_rules.gates(save.files, reader=reader, expect=expect)
        if marker.passed is False:
            return marker, container, GateResult(Gate.SET, None, NOT_LOOKED_AT)
    else:
        container = common.container_gate(save, reader)
    tags = deepspeed_rules.tag_facts(save.files, reader)
    if tags and (whole is None or whole.passed is not False):
        whole = deepspeed_rules.set_gate(tags, whole=expect.whole)
    return marker, container, whole


def union_gate(parts: Sequence[PartFiles]) -> GateResult | None:
    """The set over all ranks' parts by the rules inside; None without such directories."""
    if has_dcp(sorted(common.union_of(parts))):
        found = dcp_rules.union_gate(parts)
        if found.passed is False:
            return found
        return deepspeed_rules.union_gate(parts) or found
    return deepspeed_rules.union_gate(parts)


def facts(
    files: Sequence[FileEntry], reader: Reader
) -> tuple[tuple[FileEntry, ...], dict[str, object]]:
    """The files without stale shards, and the facts that `union_gate` needs, if any."""
    told: dict[str, object] = {}
    if has_dcp([entry.path for entry in files]):
        inner = read_facts(files, reader)
        files = inner.files
        told |= {key: inner.facts[key] for key in ("needs", "save_id") if key in inner.facts}
    if tags := deepspeed_rules.tag_facts(files, reader):
        told["deepspeed"] = deepspeed_rules.facts_for_union(tags)
    return tuple(files), told
