"""Directories of the Hugging Face Trainer: `checkpoint-N`, one process or DDP.

The Trainer picks the newest directory by name, dies on one without `trainer_state.json`, and
resumes without an error where optimizer, scheduler or RNG are missing: completeness is proved
here. `trainer_state.json` is written last by rank 0, but another rank's RNG file may come later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rtj_sidecar.checkpoints.formats import stub, zips
from rtj_sidecar.checkpoints.formats.base import FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.facts import number
from rtj_sidecar.checkpoints.formats.inert import Stub
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.layouts.guides import hf_trainer as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary
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

STATE = "trainer_state.json"
_DIRECTORY = re.compile(r"^checkpoint-(\d+)$")
_RNG = re.compile(r"^rng_state(?:_(\d+))?\.pth$")
_MODEL = re.compile(r"^(model|pytorch_model|adapter_model|tf_model|consolidated).*")
_STATE_KEYS = ("global_step", "epoch", "log_history", "best_metric", "best_model_checkpoint")
_MODEL_FILES = {"model.safetensors", "pytorch_model.bin", "adapter_model.safetensors"}
_MODEL_FILES |= {"adapter_model.bin", "pytorch_model_fsdp.bin"}
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_OPTIMIZER = {"optimizer.pt", "optimizer.bin"}
_SCHEDULER = {"scheduler.pt", "scheduler.bin"}


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
        if not expect.whole and all(_RNG.match(path) for path in files):
            detail = "another rank writes all but this rank's RNG file"
            return (
                GateResult(Gate.MARKER, None, detail),
                common.container_gate(save, reader),
                GateResult(Gate.SET, None, detail),
            )
        marker = _marker_gate(save, files, reader)
        if marker.passed is False:
            why = "not looked at: an earlier gate failed"
            return marker, GateResult(Gate.CONTAINER, None, why), GateResult(Gate.SET, None, why)
        container = common.container_gate(save, reader)
        return marker, container, _set_gate(save, files, reader, expect)

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        names = {name_of(path) for path in common.union_of(parts)}
        if STATE not in names:
            detail = f"no rank has {STATE}: the save did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        if missing := _missing_rng(names, expect.world_size):
            return common.failed(Gate.SET, Reason.FILES_MISSING, missing)
        return GateResult(Gate.SET, True, f"{STATE} and the RNG state of every rank")


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
    if names & {STATE, "training_args.bin"} or any(_RNG.match(name) for name in names):
        return True
    return "random_states_0.pkl" not in names and (
        names <= {"config.json", "generation_config.json"}
        or any(_MODEL.match(name) for name in names)
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
    inner = set(files)
    facts[HAS] = _held(inner)
    return FoundSave(
        root_key=root,
        layout=HuggingFaceTrainerLayout.name,
        files=tuple(found),
        step=step,
        epoch=epoch,
        loss=loss,
        full_state=_has_optimizer(inner),
        facts=facts,
    )


def _held(inner: set[str]) -> dict[str, bool]:
    """A scaler is told only where it is there: nothing here says whether fp16 was used. The
    Trainer computes the position in the data from the step."""
    has = parts_named(inner, optimizer=_has_optimizer(inner))
    return {**has, "loader": STATE in inner}


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


def _has_optimizer(inner: set[str]) -> bool:
    return bool(inner & _OPTIMIZER) or any(
        path.startswith(("global_step", "optimizer_")) for path in inner
    )


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
    inner = set(files)
    missing: str | None = None
    indexes = [name for name in _INDEXES if name in inner]
    for name in indexes:
        problem = common.index_problem(reader, {e.path: e for e in save.files}, files[name])
        if problem:
            return common.failed(Gate.SET, *problem)
    sharded = any(path.startswith(("pytorch_model_fsdp_", "global_step")) for path in inner)
    if not (indexes or inner & _MODEL_FILES or sharded):
        missing = "no model file"
    elif not _model_only(files, reader):
        if not _has_optimizer(inner):
            missing = "optimizer.pt is missing"
        elif not inner & _SCHEDULER and not any(path.startswith("global_step") for path in inner):
            missing = "scheduler.pt is missing"
        else:
            missing = _missing_rng(inner, expect.world_size if expect.whole else None)
    if missing:
        detail = f"{save.root_key}: {missing}; the Trainer would resume without an error, wrongly"
        return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    return GateResult(Gate.SET, True, "model, optimizer, scheduler and RNG state are there")


def _missing_rng(names: set[str], world_size: int | None) -> str | None:
    ranks = {int(m.group(1)) for name in names if (m := _RNG.match(name)) and m.group(1)}
    if not ranks:
        if "rng_state.pth" not in names:
            return "rng_state.pth is missing"
        if world_size is not None and world_size > 1:
            return f"rng_state.pth is of one process, the job has {world_size}"
        return None
    if world_size is None:
        return None
    for rank in range(max(world_size, max(ranks) + 1)):
        if rank not in ranks:
            return f"rng_state_{rank}.pth is missing"
    return None


def _model_only(files: dict[str, FileEntry], reader: Reader) -> bool:
    """Whether the user asked for `save_only_model`, as training_args.bin tells it."""
    entry = files.get("training_args.bin")
    if entry is None:
        return False

    def look(window: Window, _: bytearray) -> FileCheck:
        archive = zips.read_archive(window, caps=reader.caps)
        for member in archive.members:
            if member.name.endswith("/data.pkl"):
                content = zips.read_member(window, archive, member, limit=1 << 20)
                value = stub.load(content, caps=reader.caps)
                only = isinstance(value, Stub) and value.get("save_only_model") is True
                return FileCheck("training-args", None, "", facts={"only": only})
        raise MalformedError("it has no data.pkl")

    return reader.ask(entry, "training-args", look).facts.get("only") is True
