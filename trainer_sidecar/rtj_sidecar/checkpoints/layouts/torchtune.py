"""torchtune: `epoch_E/` or `step_S/` with weights, and `recipe_state.pt` with all the rest.

The recipe's state lies in the directory itself, or beside all of them as
`recipe_state/recipe_state.pt`, where each save writes over the one before: it then belongs to the
directory that it states (`epochs_run` is the epoch plus one), and to no other. torchtune pairs it
with the newest directory, whatever it states; a directory without its own is weights only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rtj_sidecar.checkpoints.formats.facts import whole_number
from rtj_sidecar.checkpoints.layouts import common, nested
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.fields import fields_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.layouts.guides import torchtune as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary
from rtj_sidecar.checkpoints.layouts.safetensors import marker_gate, shard_gate
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
)

STATE = "recipe_state.pt"
_DIRECTORY = re.compile(r"^(epoch|step)_(\d+)$")
_WEIGHTS = re.compile(r"\.(safetensors|bin|pt|pth)$")
_FIELDS = ("epochs_run", "steps_run", "optimizer", "opt", "dataloader", "dataloader_state_dict")


class TorchtuneLayout:
    """`layout: torchtune`."""

    name = "torchtune"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        roots: dict[str, list[FileEntry]] = {}
        states = {e.path: e for e in listing.files if name_of(e.path) == STATE}
        if not states:
            return ()  # no other file tells it from any directory of weights
        for entry in listing.files:
            root = _root(entry.path)
            if root is not None and not is_temporary(entry.path):
                roots.setdefault(root, []).append(entry)
        shared = {path[: -len(f"recipe_state/{STATE}")]: e for path, e in states.items()}
        shared = {at: e for at, e in shared.items() if e.path == f"{at}recipe_state/{STATE}"}
        told = {at: fields_of(reader, entry, keep=_FIELDS) for at, entry in shared.items()}
        found = []
        for root, files in sorted(roots.items()):
            base = root[: -len(name_of(root))]
            own = states.get(f"{root}/{STATE}")
            if own is not None:
                found.append(_save(root, files, fields_of(reader, own, keep=_FIELDS)))
            elif base in shared and _has_weights(files):
                fits = _fits(root, told[base]) or (not told[base] and _is_newest(root, roots))
                extra = [shared[base]] if fits else []
                found.append(_save(root, files + extra, told[base] if fits else None))
        return tuple(found)

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        if nested.has_dcp([entry.path for entry in save.files]):
            marker, container, whole = nested.gates(save, reader=reader, expect=expect)
            none = GateResult(Gate.SET, None, "not looked at: an earlier gate failed")
            return marker or common.no_marker("torchtune"), container, whole or none
        marker = marker_gate(save)
        container = common.container_gate(save, reader)
        whole = shard_gate(reader, save, expect=expect)
        if whole.passed is None and save.full_state:
            whole = GateResult(Gate.SET, True, f"weights, and a {STATE} that states them")
        return marker, container, whole

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        return nested.union_gate(parts) or common.union_by_history(parts, expect=expect)


def _root(path: str) -> str | None:
    parts = path.split("/")
    for depth, part in enumerate(parts[:-1]):
        if _DIRECTORY.match(part):
            return "/".join(parts[: depth + 1])
    return None


def _has_weights(files: Sequence[FileEntry]) -> bool:
    return any(_WEIGHTS.search(entry.path) or entry.path.endswith(".distcp") for entry in files)


def _number(root: str) -> tuple[str, int]:
    kind, _, digits = name_of(root).partition("_")
    return kind, int(digits[:18])


def _fits(root: str, told: Mapping[str, object]) -> bool:
    kind, number = _number(root)
    if kind == "epoch":
        return whole_number(told.get("epochs_run")) == number + 1
    return whole_number(told.get("steps_run")) == number


def _is_newest(root: str, roots: Mapping[str, object]) -> bool:
    """A state that cannot be read is the one that was being written for the newest directory."""
    base = root[: -len(name_of(root))]
    others = [other for other in roots if other[: -len(name_of(other))] == base]
    return root == max(others, key=_number)


def _save(root: str, files: Sequence[FileEntry], told: Mapping[str, object] | None) -> FoundSave:
    """`told`: what the recipe's state says; empty where it is broken, None where there is none."""
    kind, number = _number(root)
    steps = whole_number(told.get("steps_run")) if told else None
    full = bool(told.get("optimizer") or told.get("opt")) if told else None
    facts: dict[str, object] = {"unit": kind}
    if told:
        loader = bool(told.get("dataloader") or told.get("dataloader_state_dict"))
        facts[HAS] = {"optimizer": bool(full), "loader": loader}
    elif told is None:
        full = False
        facts[HAS] = {"optimizer": False}
    return FoundSave(
        root_key=root,
        layout=TorchtuneLayout.name,
        files=tuple(sorted(files, key=lambda entry: entry.path)),
        step=number if kind == "step" else steps,
        epoch=number if kind == "epoch" else None,
        full_state=full,
        facts=facts,
    )
