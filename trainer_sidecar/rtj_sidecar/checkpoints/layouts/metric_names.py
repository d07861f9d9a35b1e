"""Metrics that stand in a save's name: `model_epoch-0010_loss-0.1520.pt`, `e=3-val_acc=0.91.ckpt`.

A hint for people and for `retention.keepBest`: what the content says goes first, and nothing is
ever resumed or refused because of it. Pure.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from rtj_sidecar.checkpoints.types import FoundSave

_METRIC = re.compile(
    r"(?<![A-Za-z])([A-Za-z][A-Za-z_]*?)[-_=:]?"
    r"(-?\d+\.\d+(?:[eE][-+]?\d+)?|-?\d+[eE][-+]?\d+|nan)(?![\dA-Za-z])",
    re.IGNORECASE,
)
_LOSS = ("loss", "val_loss", "valid_loss", "validation_loss", "eval_loss", "train_loss")
_NO_METRIC = ("v", "version", "epoch", "step", "e")
_BEFORE = re.compile(r"^((ckpt|checkpoint|model|best|save|epoch|step)_)+")
_MOST = 8


def metrics_in(name: str) -> dict[str, float]:
    """Word -> value, of every decimal that follows a word. Whole numbers are steps and the like;
    a version (`v1.2`) and a size (`7.5B`) are none."""
    found: dict[str, float] = {}
    for word, digits in _METRIC.findall(name.rpartition("/")[2]):
        lower, value = _BEFORE.sub("", word.lower().strip("_")), float(digits)
        if lower and lower not in _NO_METRIC and math.isfinite(value):
            found.setdefault(lower, value)
    return dict(list(found.items())[:_MOST])


def with_named_metrics(save: FoundSave) -> FoundSave:
    """With `facts["metrics"]` of its name, and a loss where its content tells none."""
    found = metrics_in(save.root_key)
    if not found:
        return save
    loss = save.loss
    if loss is None:
        loss = next((found[word] for word in _LOSS if word in found), None)
    return replace(save, loss=loss, facts={**save.facts, "metrics": found})
