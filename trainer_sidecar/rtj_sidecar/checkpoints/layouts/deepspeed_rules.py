"""The rules of a DeepSpeed tag directory, for every layout that has such directories inside.

Names are those of `DeepSpeedEngine._get_ckpt_name` and its neighbours (deepspeed/runtime/engine.py,
0.19.8). Model states say how many ranks wrote: `dp_world_size` x `mp_world_size`. The `latest` file
is written before slower ranks have written their shards, so it proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rtj_sidecar.checkpoints.formats.facts import whole_number
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.fields import SOMETHING, fields_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import FileEntry, Gate, GateResult, PartFiles, Reason

_MODEL = re.compile(r"^mp_rank_(\d+)_model_states\.pt$")
_SHARDED = re.compile(r"^zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt$")
_OPTIMIZER = re.compile(r"^(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$")
_EXPERT = re.compile(r"^layer_(\d+)_expert_(\d+)_mp_rank_(\d+)_model_states\.pt$")
_EXPERT_OPTIMIZER = re.compile(r"^expp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$")
_LAYER = re.compile(r"^layer_(\d+)-model_(\d+)-model_states\.pt$")
_ALL = (_MODEL, _SHARDED, _OPTIMIZER, _EXPERT, _EXPERT_OPTIMIZER, _LAYER)
_FIELDS: tuple[str, ...] = (
    "dp_world_size",
    "mp_world_size",
    "global_steps",
    "param_shapes",
    "optimizer",
)
# Who opens which partition on loading: see checkpoints.needs.
_LOADING = ("ds_config.zero_optimization.stage", "ds_config.zero_optimization.elastic_checkpoint")
_FIELDS += _LOADING
_FIELDS += ("lr_scheduler", "data_sampler", "num_experts", "epoch", "loss")


@dataclass(frozen=True, slots=True)
class TagFacts:
    """What the model states of one tag directory say, as plain JSON values in `told`."""

    directory: str
    names: frozenset[str]
    told: Mapping[str, object] = field(default_factory=dict)

    def number(self, name: str) -> int | None:
        return whole_number(self.told.get(name))

    @property
    def partitioned(self) -> bool:
        """Whether the optimizer's state is in files of its own, one for each rank."""
        shapes = self.told.get("param_shapes") is not None
        return shapes or any(_OPTIMIZER.match(name) for name in self.names)

    @property
    def has_optimizer(self) -> bool:
        own = any(_OPTIMIZER.match(n) or _EXPERT_OPTIMIZER.match(n) for n in self.names)
        return own or self.told.get("optimizer") == SOMETHING


def is_ours(path: str) -> bool:
    """A file whose name DeepSpeed alone gives."""
    return any(rule.match(name_of(path)) for rule in _ALL)


def tag_directories(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({parent_of(path) for path in paths if is_ours(path)}))


def tag_facts(entries: Iterable[FileEntry], reader: Reader) -> tuple[TagFacts, ...]:
    """One for each tag directory among the entries, by directory. Never raises."""
    by_directory: dict[str, list[FileEntry]] = {}
    for entry in entries:
        if is_ours(entry.path):
            by_directory.setdefault(parent_of(entry.path), []).append(entry)
    found = []
    for directory, own in sorted(by_directory.items()):
        told: Mapping[str, object] = {}
        for entry in sorted(own, key=lambda e: e.path):
            name = name_of(entry.path)
            if _MODEL.match(name) or _SHARDED.match(name):
                told = fields_of(reader, entry, keep=_FIELDS)
                if told:
                    break
        found.append(TagFacts(directory, frozenset(name_of(e.path) for e in own), told))
    return tuple(found)


def set_gate(tags: Iterable[TagFacts], *, whole: bool = True) -> GateResult:
    """Whether each tag directory holds every rank's files. `whole` false: other ranks' files may
    be on other disks, and nothing is condemned for their absence."""
    count = 0
    for tag in tags:
        count += len(tag.names)
        if not whole:
            continue
        for name in _missing(tag):
            detail = f"{tag.directory}/{name} is missing: {_why(tag)}"
            return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    if not whole:
        return GateResult(Gate.SET, None, "the other ranks' files are on their disks")
    return GateResult(Gate.SET, True, f"the {count} files of all ranks, as the model states count")


def union_gate(parts: Iterable[PartFiles]) -> GateResult | None:
    """Over all ranks' parts, by their `deepspeed` facts; None where no part has such files."""
    known = list(parts)
    paths = common.union_of(known)
    told: dict[str, Mapping[str, object]] = {}
    for part in known:
        own = part.facts.get("deepspeed")
        for directory, facts in (own if isinstance(own, dict) else {}).items():
            if isinstance(facts, dict) and (facts or directory not in told):
                told[directory] = facts
    directories = tag_directories(paths)
    if not directories:
        return None
    tags = [
        TagFacts(d, frozenset(name_of(p) for p in paths if parent_of(p) == d), told.get(d, {}))
        for d in directories
    ]
    return set_gate(tags)


def facts_for_union(tags: Iterable[TagFacts]) -> dict[str, object]:
    """What `union_gate` needs of this rank, for `FoundSave.facts["deepspeed"]`."""
    wanted = ("dp_world_size", "mp_world_size", "param_shapes", "num_experts", *_LOADING)
    return {tag.directory: {k: tag.told[k] for k in wanted if k in tag.told} for tag in tags}


def _why(tag: TagFacts) -> str:
    data, model = tag.number("dp_world_size"), tag.number("mp_world_size")
    if data is None or model is None:
        return "no model states here could be read"
    return f"the model states say {data} data-parallel x {model} model-parallel ranks wrote"


def _missing(tag: TagFacts) -> Iterator[str]:
    models = {int(m.group(1)) for n in tag.names if (m := _MODEL.match(n))}
    sharded = {_pair(m) for n in tag.names if (m := _SHARDED.match(n))}
    optimizer = {_pair(m) for n in tag.names if (m := _OPTIMIZER.match(n))}
    data, model = tag.number("dp_world_size"), tag.number("mp_world_size")
    if not models and not sharded:
        yield "mp_rank_00_model_states.pt"
        return
    if data is None or model is None:
        # The container gate condemns what cannot be read; by names alone what must be contiguous.
        data = max((r for r, _ in sharded | optimizer), default=0) + 1
        model = max([*models, *(m for _, m in sharded | optimizer)], default=0) + 1
    # One after the other, never as a list: a file can state any number of ranks.
    if sharded:
        for rank, part in _grid(data, model):
            if (rank, part) not in sharded:
                yield f"zero_pp_rank_{rank}_mp_rank_{part:02d}_model_states.pt"
    else:
        yield from (f"mp_rank_{m:02d}_model_states.pt" for m in range(model) if m not in models)
    if tag.partitioned:
        for rank, part in _grid(data, model):
            if (rank, part) not in optimizer:
                yield f"zero_pp_rank_{rank}_mp_rank_{part:02d}_optim_states.pt"
    yield from _missing_experts(tag)
    yield from _missing_layers(tag)


def _grid(data: int, model: int) -> Iterator[tuple[int, int]]:
    return ((rank, part) for part in range(model) for rank in range(data))


def _pair(found: re.Match[str]) -> tuple[int, int]:
    return int(found.group(1)), int(found.group(2))


def _missing_experts(tag: TagFacts) -> Iterator[str]:
    there = {
        (int(m.group(1)), int(m.group(2)), int(m.group(3)))
        for name in tag.names
        if (m := _EXPERT.match(name))
    }
    stated = tag.told.get("num_experts")
    counts = stated if isinstance(stated, list) else []
    layers = sorted({layer for layer, _, _ in there} | set(range(len(counts))))
    parts = sorted({part for _, _, part in there}) or [0]
    for layer in layers if there else ():
        own = [expert for found, expert, _ in there if found == layer]
        count = counts[layer] if layer < len(counts) else max(own, default=-1) + 1
        for expert in range(count):
            for part in parts:
                if (layer, expert, part) not in there:
                    yield f"layer_{layer}_expert_{expert}_mp_rank_{part:02d}_model_states.pt"


def _missing_layers(tag: TagFacts) -> Iterator[str]:
    there = {
        (int(m.group(1)), int(m.group(2)), m.group(1), m.group(2))
        for name in tag.names
        if (m := _LAYER.match(name))
    }
    width = max((part for _, part, _, _ in there), default=-1) + 1
    by_layer: dict[str, set[int]] = {}
    for _, part, text, _ in there:
        by_layer.setdefault(text, set()).add(part)
    for text, parts in sorted(by_layer.items()):
        for part in range(width):
            if part not in parts:
                yield f"layer_{text}-model_{part:02d}-model_states.pt"
