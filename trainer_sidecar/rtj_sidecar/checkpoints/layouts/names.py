"""What a file's or directory's name says: step, epoch, or a number of unknown unit.

Integers are compared as integers, so 999 < 1000 and 0900000 < 1000000 whatever their padding.
A name is a label, never proof: content goes first wherever it can be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_STEP = {"step", "steps", "globalstep", "iter", "iters", "iteration", "iterations", "it", "ba"}
_STEP |= {"batch", "update", "updates"}
_EPOCH = {"epoch", "epochs", "ep", "e"}
_SAVE = {"checkpoint", "ckpt", "chkpt", "cp", "save", "saved", "snapshot", "snap"}
_PART = {"model", "weights", "net", "network", "state", "states", "optim", "optimizer"}
_PART |= {"opt", "scheduler", "ema", "adapter", "rng", "scaler", ""}
_OTHER = {"v", "ver", "version", "run", "seed", "rank", "shard", "part", "of", "worker", "gpu"}
_OTHER |= {"node", "fold", "trial", "layer", "expert", "loss", "acc", "accuracy", "lr", "score"}
_OTHER |= {"samples", "tokens", "params", "bs", "dim", "tp", "pp", "dp", "mp", "size", "dprank"}
_SHARD = re.compile(r"-?\d{5}-of-\d{5}")
_SHARD_APART = re.compile(f"({_SHARD.pattern})")
# A word, at most one separator, an integer that is no decimal and is not glued to more letters.
_NUMBER = re.compile(r"([A-Za-z]*)([-_=. ]?)(?<![\d.])(\d+)(?![\d]|\.\d|[A-Za-z])")
_SUFFIX = re.compile(r"\.(pt|pth|ckpt|bin|tar|safetensors|json|txt|pkl|npz|npy|h5|keras)$")
# Not `mp_rank_00`: a rank in one dimension of a grid is not a rank of the world.
# Nor the rank of a low-rank adapter: `lora_rank16.pt`.
_RANK = re.compile(
    r"(?<![a-z]p_)(?<!lora)(?<!lora[-_.])(?<!adapter)(?<!adapter[-_.])(?<!dora)(?<!dora[-_.])"
    r"rank[-_=]?(\d+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """What one name says. `weak` is a number whose unit the name does not tell (`ckpt_10`).

    `rank_of_word`: 3 for a step or epoch by name, 2 for a word that means a whole save, 1 for a
    word that may be a part of one (`model_0`) or none, 0 without a number. `sure` is false where
    the number may belong to the name itself (`gpt-2.pt`): then the path may well be written again.
    """

    step: int | None = None
    epoch: int | None = None
    weak: int | None = None
    rank_of_word: int = 0
    sure: bool = False

    def __bool__(self) -> bool:
        return self.rank_of_word > 0


NO_NUMBERS = Numbers()


def numbers_in(name: str) -> Numbers:
    """The numbers in one path component (a file name with or without its suffix)."""
    stem = _SHARD.sub("", _SUFFIX.sub("", name))
    stem = stem.replace("global_step", "globalstep")
    step = epoch = save = part = None
    bare, sure = True, True
    for word, separator, digits in _NUMBER.findall(stem):
        lower, value = word.lower(), int(digits[:18])
        if lower in _STEP:
            step = value
        elif lower in _EPOCH:
            epoch = value
        elif lower in _SAVE:
            save = value
        elif lower in _PART and (separator or not word):
            bare = bare and not word
            part = value if part is None else part
        elif part is None and separator and lower not in _OTHER and stem.endswith(digits):
            part, sure = value, False
    if step is not None or epoch is not None:
        return Numbers(step, epoch, None, 3, True)
    if save is not None:
        return Numbers(None, None, save, 2, True)
    # A bare number counts only where it is the whole name, or the end of it.
    if part is not None and (not bare or re.search(r"\d$", stem)):
        return Numbers(None, None, part, 1, sure)
    return NO_NUMBERS


def without_numbers(name: str, numbers: Numbers) -> str:
    """The name with `#` for those of these numbers that `numbers_in` may have taken from it: no
    shard's, rank's or layer's, however equal."""

    def put(found: re.Match[str]) -> str:
        word, separator, digits = found[1], found[2], found[3]
        lower, value = word.lower(), int(digits[:18])
        if lower in _STEP:
            is_own = value == numbers.step
        elif lower in _EPOCH:
            is_own = value == numbers.epoch
        else:
            is_own = value == numbers.weak and lower not in _OTHER
        return f"{word}{separator}{'#' if is_own else digits}"

    parts = _SHARD_APART.split(name)  # shards are its odd ones
    return "".join(part if i % 2 else _NUMBER.sub(put, part) for i, part in enumerate(parts))


def rank_in(name: str) -> int | None:
    """The rank that a per-rank file's name states (`ckpt_10_rank3.pt`)."""
    found = _RANK.search(name)
    return int(found.group(1)) if found else None


def pattern_of(path: str) -> str:
    """The path with each run of digits replaced by `#`: equal for the same file of two saves."""
    return re.sub(r"\d+", "#", path)


def is_temporary(path: str) -> bool:
    """A file that a writer will rename or remove: never part of a save."""
    name = path.rsplit("/", 1)[-1]
    return name.startswith(".tmp") or name.endswith((".tmp", ".part", ".partial", ".lock"))
