"""Directories of the Hugging Face Trainer: `checkpoint-N`; one process, DDP, DeepSpeed, FSDP, PEFT.

The Trainer picks the newest directory by name, dies on one without `trainer_state.json`, and
resumes without an error where optimizer, scheduler or RNG are missing: completeness is proved
here. `trainer_state.json` is written last by rank 0, but another rank's RNG file may come later.
DeepSpeed's `global_stepN` and FSDP's DCP directories inside are judged by their own rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rtj_sidecar.checkpoints.formats.base import FileCheck
from rtj_sidecar.checkpoints.formats.facts import number
from rtj_sidecar.checkpoints.layouts import common, deepspeed_rules, nested, orbax
from rtj_sidecar.checkpoints.layouts import hf_rules as rules
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.dcp_rules import MARKER as DCP_MARKER
from rtj_sidecar.checkpoints.layouts.fields import fields_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.layouts.guides import hf_trainer as guides
from rtj_sidecar.checkpoints.layouts.hf_rules import STATE
from rtj_sidecar.checkpoints.layouts.names import is_temporary
from rtj_sidecar.checkpoints.layouts.stated import POINTERS, text_pointer
from rtj_sidecar.checkpoints.paths import UnsafePathError
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

_DIRECTORY = re.compile(r"^checkpoint-(\d+)$")
_STATE_KEYS = ("global_step", "epoch", "log_history", "best_metric", "best_model_checkpoint")
_ARGUMENTS = ("save_only_model", "fp16")
_FOREIGN = frozenset({DCP_MARKER, orbax.MARKER, orbax.TREE, "manifest.ocdbt"})


class HuggingFaceTrainerLayout:
    """`layout: hf-trainer`."""

    name = "hf-trainer"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        roots: dict[str, list[FileEntry]] = {}
        for entry in listing.files:
            if (root := _root(entry.path)) is not None and not is_temporary(entry.path):
                roots.setdefault(root, []).append(entry)
        return tuple(
            _save(root, found, reader) for root, found in sorted(roots.items()) if _is_ours(found)
        )

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        files = {_inner(save, entry): entry for entry in save.files}
        if not expect.whole and rules.is_later_rank(files):
            detail = "another rank writes all but this rank's RNG state and shards"
            _, container, _ = nested.gates(save, reader=reader, expect=expect)
            return GateResult(Gate.MARKER, None, detail), container, _unseen(detail)
        marker = _marker_gate(save, files, reader)
        if marker.passed is False:
            return marker, *(_unseen(nested.NOT_LOOKED_AT, gate) for gate in _LATER)
        inner, container, whole = nested.gates(save, reader=reader, expect=expect)
        if inner is not None and inner.passed is False:
            return inner, container, _unseen(nested.NOT_LOOKED_AT)
        by_torch = [files[name] for name in files if rules.TORCH.match(name)]
        container = common.not_torch(by_torch, reader) or container
        if whole is not None and whole.passed is False:
            return marker, container, whole
        return marker, container, _set_gate(save, files, reader, expect)

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = common.union_of(parts)
        root = next((path for path in union if name_of(path) == STATE), None)
        if root is None:
            detail = f"no rank has {STATE}: the save did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        prefix = root.removesuffix(STATE)
        told: dict[str, object] = {}
        for part in parts:
            own = part.facts.get("asked")
            told |= own if isinstance(own, dict) else {}
        asked = rules.Asked(
            model_only=told.get("model_only") is True,
            deepspeed_scheduler=True if told.get("deepspeed_scheduler") is True else None,
        )
        names = {path.removeprefix(prefix): size for path, size in union.items()}
        # Facts of an older sidecar do not tell what was asked for: then only what it demanded.
        missing = (
            rules.missing(names, asked, world_size=expect.demanded)
            if told
            else rules.missing_rng(names, expect.demanded)
        )
        if missing:
            return common.failed(Gate.SET, Reason.FILES_MISSING, missing)
        inner = nested.union_gate(parts)
        if inner is not None and inner.passed is False:
            return inner
        counted = True if expect.demanded is not None else None
        return GateResult(Gate.SET, counted, f"{STATE} and the files of every rank")


def _root(path: str) -> str | None:
    parts = path.split("/")
    for depth, part in enumerate(parts[:-1]):
        if _DIRECTORY.match(part):
            return "/".join(parts[: depth + 1])
    return None


def _is_ours(found: list[FileEntry]) -> bool:
    """Any file that the Trainer alone writes, or a model directly inside: it is written first, so
    a save killed early holds nothing else and must not pass for a whole one of another layout."""
    depth = min(entry.path.count("/") for entry in found)
    names = {name_of(entry.path) for entry in found if entry.path.count("/") == depth}
    if names & {STATE, "training_args.bin"} or any(rules.RNG.match(name) for name in names):
        return True
    # Other frameworks' directories may bear the same name.
    if any(name in _FOREIGN or name.endswith(".distcp") for name in names):
        return False
    return "random_states_0.pkl" not in names and (
        names <= {"config.json", "generation_config.json"}
        or any(rules.MODEL.match(name) for name in names)
    )


def _inner(save: FoundSave, entry: FileEntry) -> str:
    return entry.path[len(save.root_key) + 1 :]


def _save(root: str, found: list[FileEntry], reader: Reader) -> FoundSave:
    step = int(root.rpartition("checkpoint-")[2][:18])
    files = {entry.path[len(root) + 1 :]: entry for entry in found}
    facts: dict[str, object] = {"unit": "step"}
    epoch: int | None = None
    loss: float | None = None
    state = _state(reader, files)
    if state is not None and state.passed:
        exact = number(state.facts.get("epoch"))
        if exact is not None:
            epoch, facts["epoch"] = int(exact), exact
        loss = _last(state, "loss")
        if (evaluated := _last(state, "eval_loss")) is not None:
            facts["eval_loss"] = evaluated
        if (best := number(state.facts.get("best_metric"))) is not None:
            facts["best"] = {"best_metric": best}
    asked = _asked(files, reader)
    own, inner_facts = nested.facts(found, reader)
    facts |= inner_facts
    if not rules.is_later_rank(files):
        facts["asked"] = {
            "model_only": asked.model_only,
            "deepspeed_scheduler": asked.deepspeed_scheduler is True,
        }
        facts[HAS] = _held(files, asked)
    if missing := _latest(root, files, reader):
        facts[POINTERS] = missing
    return FoundSave(
        root_key=root,
        layout=HuggingFaceTrainerLayout.name,
        files=own,
        step=step,
        epoch=epoch,
        loss=loss,
        full_state=rules.has_optimizer(files),
        facts=facts,
    )


def _latest(root: str, files: Mapping[str, FileEntry], reader: Reader) -> list[dict[str, object]]:
    """DeepSpeed's `latest` inside, where the save has none that names its tag (lost, or emptied by
    a power cut): the Trainer resumes by it alone."""
    tags = [d for d in deepspeed_rules.tag_directories(files) if "/" not in d and d != "."]
    if len(tags) != 1:
        return []
    entry = files.get("latest")
    try:
        if entry is not None and reader.small(entry, limit=256).strip() == tags[0].encode():
            return []
    except (OSError, UnsafePathError):
        return []
    return [text_pointer(f"{root}/latest", tags[0])]


def _asked(files: Mapping[str, FileEntry], reader: Reader) -> rules.Asked:
    entry = files.get("training_args.bin")
    told = fields_of(reader, entry, keep=_ARGUMENTS) if entry is not None else {}
    tags = deepspeed_rules.tag_facts(files.values(), reader)
    known = [tag.told.get("lr_scheduler") is not None for tag in tags if tag.told]
    return rules.Asked(
        model_only=told.get("save_only_model") is True,
        fp16=told.get("fp16") is True,
        deepspeed_scheduler=any(known) if known else None,
    )


def _held(files: Mapping[str, FileEntry], asked: rules.Asked) -> dict[str, bool]:
    """The Trainer computes the position in the data from the step, and needs a scaler with fp16
    alone; DeepSpeed keeps the scaler in its optimizer's files."""
    has = {
        "optimizer": rules.has_optimizer(files),
        "scheduler": rules.has_scheduler(files, asked),
        "rng": any(rules.RNG.match(path) for path in files),
        "loader": STATE in files,
    }
    if "scaler.pt" in files:
        has["scaler"] = True
    elif asked.fp16 and asked.deepspeed_scheduler is None:
        has["scaler"] = False
    return has


def _state(reader: Reader, files: dict[str, FileEntry]) -> FileCheck | None:
    entry = files.get(STATE)
    if entry is None:
        return None
    try:
        return common.json_of(reader, entry, keep=_STATE_KEYS)
    except (OSError, UnsafePathError):
        return None


def _last(state: FileCheck, key: str) -> float | None:
    history = state.facts.get("log_history")
    for line in reversed(history if isinstance(history, list) else []):
        if isinstance(line, dict) and (value := number(line.get(key))) is not None:
            return value
    return None


def _marker_gate(save: FoundSave, files: dict[str, FileEntry], reader: Reader) -> GateResult:
    entry = files.get(STATE)
    if entry is None:
        detail = (
            f"{save.root_key}/{STATE} is missing: the save did not finish (a script that never"
            " writes it needs checkpoint.layout: safetensors or torch)"
        )
        return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
    state = common.json_of(reader, entry, keep=_STATE_KEYS)
    if state.passed is None:
        return GateResult(Gate.MARKER, None, state.detail)
    if not state.passed:
        return common.failed(Gate.MARKER, Reason.MARKER_INVALID, state.detail)
    if state.facts.get("global_step") != save.step:
        stated = common.plain(state.facts.get("global_step"))
        detail = f"{entry.path} says global_step {stated}, its directory says {save.step}"
        return common.failed(Gate.MARKER, Reason.STEP_MISMATCH, detail)
    return GateResult(Gate.MARKER, True, f"{STATE} parses and says step {save.step}")


def _set_gate(
    save: FoundSave, files: dict[str, FileEntry], reader: Reader, expect: Expectations
) -> GateResult:
    for name in (name for name in rules.INDEXES if name in files):
        problem = common.index_problem(reader, {e.path: e for e in save.files}, files[name])
        if problem:
            return common.failed(Gate.SET, *problem)
    world_size = expect.demanded if expect.whole else None
    asked = _asked(files, reader)
    sizes = {name: entry.size for name, entry in files.items()}
    missing = rules.missing(sizes, asked, world_size=world_size, first=expect.whole)
    if missing:
        detail = f"{save.root_key}: {missing}; the Trainer would resume without an error, wrongly"
        return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    if not rules.names_its_model(sizes):
        return _unseen("no file in it bears the name of a model: which one it is, nobody can tell")
    return GateResult(Gate.SET, True, "model, optimizer, scheduler and RNG state are there")


def _unseen(why: str, gate: Gate = Gate.SET) -> GateResult:
    return GateResult(gate, None, why)


_LATER = (Gate.CONTAINER, Gate.SET)
