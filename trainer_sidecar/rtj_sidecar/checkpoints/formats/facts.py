"""The few facts wanted from an inert pickle or JSON value: step, epoch, loss, what is in it.

Bounded: looks at the top and one level below, never follows deeper, and keeps only plain JSON
values of limited length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rtj_sidecar.checkpoints.formats.inert import Stub
from rtj_sidecar.checkpoints.resume_state import parts_named

STEP_KEYS: tuple[str, ...] = (
    "global_step",
    "global_steps",
    "step",
    "iteration",
    "iter_num",
    "iter",
    "it",
    "steps",
)
STEP_KEYS += ("steps_run", "num_updates")
EPOCH_KEYS = ("epoch", "current_epoch", "epochs_run", "epochs")
LOSS_KEYS = ("loss", "train_loss", "val_loss", "validation_loss", "eval_loss")
_NESTED = ("state", "trainer", "train_state", "trainer_state", "meta", "metadata", "progress")
VERSIONS = "versions"
_VERSION = re.compile(r"^_?([A-Za-z][\w-]*?)[_-]version$")
_LIBRARIES = {"ds": "deepspeed", "pytorch-lightning": "lightning"}
_NO_LIBRARY = {
    "checkpoint",
    "format",
    "file",
    "state",
    "data",
    "model",
    "dataset",
    "config",
    "base",
}
_ENVIRONMENTS = ("state", "metadata", "meta", "composer_env_info", "env", "environment", "versions")
"""Mappings that may hold versions, each inside of the others."""
_MAX_KEYS = 64
_MAX_TEXT = 200


def from_state(value: Any) -> dict[str, object]:
    """Facts of a checkpoint's top-level value: JSON-ready, any of step, epoch, loss, keys, ….

    `full_state`: whether a top-level key looks like an optimizer's; absent where it is no mapping.
    `best`: fields about another save (`best_…`), kept apart: they are not this save's loss.
    """
    top = _mapping(value)
    if top is None:
        return {"top": value.name if isinstance(value, Stub) else type(value).__name__}
    facts: dict[str, object] = {}
    levels = [top] + [m for name in _NESTED if (m := _mapping(top.get(name))) is not None]
    for level in levels:
        _take(facts, "step", level, STEP_KEYS, whole_number)
        _take(facts, "epoch", level, EPOCH_KEYS, whole_number)
        _take(facts, "loss", level, LOSS_KEYS, number)
    if any(_is_not_finite(level.get(key)) for level in levels for key in LOSS_KEYS):
        facts["loss_not_finite"] = True
    names = [key for key in top if isinstance(key, str)]
    facts["keys"] = [key[:_MAX_TEXT] for key in names[:_MAX_KEYS]]
    facts["key_count"] = len(top)
    inner = [key for level in levels for key in level if isinstance(key, str)]
    holders = [key for level in levels for key in level if _holds_optimizer(key, level[key])]
    # {state, param_groups} is the state of an optimizer saved by itself.
    facts["full_state"] = bool(holders) or {"state", "param_groups"} <= {*names}
    facts["has"] = parts_named(inner, optimizer=facts["full_state"] is True)
    best = {key[:_MAX_TEXT]: number(top[key]) for key in names if key.startswith("best")}
    if known := {key: item for key, item in best.items() if item is not None}:
        facts["best"] = known
    if versions := _versions(top):
        facts[VERSIONS] = versions
    return facts


def versions_in(items: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    """Library -> version, of the pairs whose key is `<library>_version` and whose value is a text
    that begins with a number: a format's own number names no library."""
    found: dict[str, str] = {}
    for key, value in items:
        named = _VERSION.match(key) if isinstance(key, str) and len(key) < 64 else None
        if named is None or not isinstance(value, str) or not value[:1].isdigit():
            continue
        library = named.group(1).lower()
        if library not in _NO_LIBRARY:
            found.setdefault(_LIBRARIES.get(library, library), value[:64])
    return found


def _versions(top: Mapping[Any, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    level: list[Mapping[Any, Any]] = [top]
    for _ in range(4):
        for each in level:
            found = {**versions_in(list(each.items())[:1000]), **found}
        inner = (_mapping(each.get(name)) for each in level for name in _ENVIRONMENTS)
        level = [each for each in inner if each is not None]
    return dict(list(found.items())[:16])


def whole_number(value: Any) -> int | None:
    """A non-negative step or epoch below 2**63, also from a float without a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        return None
    return int(value) if 0 <= value < 2**63 else None


def number(value: Any) -> float | None:
    """A finite float; None for all else (JSON has no NaN)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) >= 2**63:
        return None
    return float(value) if math.isfinite(value) else None


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _take(
    facts: dict[str, object], name: str, level: Mapping[Any, Any], keys: tuple[str, ...], read: Any
) -> None:
    for key in keys:
        if name not in facts and (found := read(level.get(key))) is not None:
            facts[name] = found


def _holds_optimizer(key: Any, value: Any) -> bool:
    """By name, and only where the value can hold tensors: settings name optimizers, too."""
    if not isinstance(key, str) or not isinstance(value, dict | list | tuple | Stub):
        return False
    named = key.lower().startswith("optim") or "optimizer" in key.lower()
    return named or key in ("opt", "opt_state")


def _mapping(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, dict):
        return value
    if isinstance(value, Stub) and value.state:
        return value.state
    return None
