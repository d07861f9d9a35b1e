"""What one line says of progress: of a trainer's output, or of its progress file.

A log line is written for people: its step is advice. Must never fail on any input.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_LINE = 8192
MAX_STEP = 10**15  # more is no step, and a job's status could not hold it

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf(?:inity)?"
# tqdm.std.tqdm.format_meter: `desc: 45%|####  | 45/100 [00:10<00:12, 4.5it/s, loss=1.2]`.
_BAR = re.compile(r"(?:^|[\s:])\d{1,3}%\|[^|]{0,400}\|\s*(\d+)/(\d+)\s*\[")
_BAR_WORDS = re.compile(r"^\W*(epoch|train|training|steps?|iter|iteration|progress)?\b", re.I)
# Megatron-LM training_log: ` iteration      100/  500000 | consumed samples: … | lm loss: … |`
_MEGATRON = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|", re.I)
_STEP = re.compile(
    r"(?<![A-Za-z0-9_\-.])(?:global[_ -]?|train[_ -]?)?(?:step|iter|iteration)\b['\"]?"
    r"\s*(?:[:=#]\s*|\[\s*|\(\s*)?(\d{1,15})(?![\d.]*\s*(?:ms|s/it|it/s|sec)\b)(?!\.\d)",
    re.I,
)
_EPOCH = re.compile(
    r"(?<![A-Za-z0-9_\-.])epoch\b['\"]?\s*(?:[:=#]\s*|\[\s*)?(\d{1,9}(?:\.\d+)?)", re.I
)
_LOSS = re.compile(
    r"(?<![A-Za-z0-9_\-.])((?:[a-z][a-z0-9]*[_ /-])?)loss\b['\"]?\s*[:=]?\s*("
    + _NUMBER
    + r")(?![\w.])",
    re.I,
)
_GRAD_NORM = re.compile(r"\bgrad(?:ient)?[_ -]?norm\b['\"]?\s*[:=]\s*(" + _NUMBER + r")", re.I)
_LR = re.compile(
    r"(?<![A-Za-z0-9_\-.])(?:lr|learning[_ -]?rate)\b['\"]?\s*[:=]\s*(" + _NUMBER + r")(?![\w.])",
    re.I,
)
_SAMPLES = re.compile(r"\bconsumed[_ -]samples\b['\"]?\s*[:=]\s*(\d+)", re.I)
_EVALUATION = r"(?:val|valid|validation|validating|eval|evaluation|evaluating|test|testing|dev)"
_NOT_TRAINING = re.compile(rf"^(?:{_EVALUATION}|best|min)[_ /-]$", re.I)
_WHOLE = re.compile(
    r"^(?:|(?:train|training|lm|total|global|avg|average|mean|batch|step)[_ /-])$", re.I
)
_EVALUATES = re.compile(rf"(?<![A-Za-z0-9]){_EVALUATION}(?![A-Za-z0-9])", re.I)
_TRAINS = re.compile(r"(?<![A-Za-z0-9])train(?:ing)?(?![A-Za-z0-9])", re.I)


@dataclass(frozen=True, slots=True)
class Sign:
    """What one line says. `epoch` may be a fraction; `total` is a progress bar's; `samples` is how
    many the job has used, `batch` a hash of this step's data, `step_seconds` what it took."""

    step: int | None = None
    epoch: float | None = None
    loss: float | None = None
    total: int | None = None
    grad_norm: float | None = None
    lr: float | None = None
    samples: float | None = None
    batch: str | None = None
    step_seconds: float | None = None

    @property
    def empty(self) -> bool:
        return self.step is None and self.epoch is None and self.loss is None


NOTHING = Sign()


def read_line(line: str) -> Sign:
    """What one line of output says about progress; an empty Sign where nothing."""
    text = line[:MAX_LINE].strip()
    if not text or not any(character.isdigit() for character in text):
        return NOTHING
    if text.startswith("{") and text.endswith("}"):
        return _from_mapping(_mapping(text))
    if bar := _BAR.search(text):
        return _from_bar(text, bar)
    step = _MEGATRON.search(text) or _STEP.search(text)
    epoch = _EPOCH.search(text)
    return Sign(
        step=_step(int(step.group(1))) if step else None,
        epoch=float(epoch.group(1)) if epoch else None,
        loss=_loss(text),
        grad_norm=_found(_GRAD_NORM, text),
        lr=_found(_LR, text),
        samples=_found(_SAMPLES, text),
    )


def _step(number: int) -> int | None:
    return number if number <= MAX_STEP else None


def _found(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return as_number(match.group(1)) if match else None


def _mapping(text: str) -> Mapping[str, object]:
    """A line that is a dict: JSON, or Python's repr of one (Hugging Face Trainer)."""
    try:
        found = json.loads(text)
    except ValueError:
        try:
            # `nan` and `inf` are names in a repr; as text they are read as numbers below.
            found = ast.literal_eval(re.sub(r":\s*(nan|-?inf)\b", r": '\1'", text))
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return {}
    return found if isinstance(found, dict) else {}


_KEYS = {
    "step": ("step", "global_step", "iteration", "iter"),
    "loss": ("loss", "train_loss", "train/loss", "lm loss"),
    "grad_norm": ("grad_norm", "gradient_norm", "grad norm"),
    "lr": ("lr", "learning_rate", "learning rate"),
    "samples": ("samples", "consumed_samples", "consumed samples"),
    "batch": ("batch_hash",),
    "step_seconds": ("step_seconds", "step_time"),
}


def _from_mapping(found: Mapping[str, object]) -> Sign:
    told = {
        name: next((found[k] for k in keys if k in found), None) for name, keys in _KEYS.items()
    }
    number, batch = as_number(told["step"]), told["batch"]
    whole = number is not None and math.isfinite(number) and number == int(number) and number >= 0
    return Sign(
        step=_step(int(number)) if number is not None and whole else None,
        epoch=as_number(found.get("epoch")),
        loss=as_number(told["loss"]),
        grad_norm=as_number(told["grad_norm"]),
        lr=as_number(told["lr"]),
        samples=as_number(told["samples"]),
        batch=str(batch)[:64] if isinstance(batch, str | int) else None,
        step_seconds=as_number(told["step_seconds"]),
    )


def as_number(value: object) -> float | None:
    """A number, also where a framework prints it as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _from_bar(text: str, bar: re.Match[str]) -> Sign:
    before = text[: bar.start()].strip(" :")
    words = _BAR_WORDS.match(before)
    if before and not (words and words.group(1)):
        return Sign()  # Downloading, Loading checkpoint shards, Evaluating, …
    done, total = int(bar.group(1)), int(bar.group(2))
    epoch = _EPOCH.search(before)
    after = text[bar.end() :]
    if epoch is None:
        return Sign(step=_step(done), loss=_loss(after), total=total)
    # Lightning counts batches within the epoch.
    number = int(float(epoch.group(1)))
    step = _step(number * total + done)
    return Sign(step=step, epoch=float(number), loss=_loss(after), total=total)


def _loss(text: str) -> float | None:
    """Of training as a whole; else a part of it, such as `aux_loss`, unless that is no number: it
    may just not be computed in this step."""
    part: float | None = None
    for match in _LOSS.finditer(text):
        value, before = as_number(match.group(2)), text[: match.start()]
        is_number = value is not None and math.isfinite(value)
        if _NOT_TRAINING.match(match.group(1)):
            continue
        if not is_number and _EVALUATES.search(before) and not _TRAINS.search(before):
            continue  # `eval: step 100 loss nan`: an empty set has no mean
        if _WHOLE.match(match.group(1)):
            return value
        if part is None and is_number:
            part = value
    return part


def read_progress_line(line: str) -> Sign | None:
    """One line of the progress file; None where it is no JSON object with a step or a loss."""
    try:
        found = json.loads(line[: 4 * MAX_LINE])
    except ValueError:
        return None
    sign = _from_mapping(found) if isinstance(found, dict) else Sign()
    return None if sign.empty else sign
