"""What a tensor is to training, by its name: a parameter, optimizer state, or neither. Pure.

Only a NaN in the first two can condemn a save. A pickle does not tell a buffer from a parameter
(state_dict detaches both), so buffers are known by the names that frameworks give them; schedulers,
scores, scalers, loaders and random states by the top-level key or file they are saved under.
"""

from __future__ import annotations

import re
from enum import StrEnum


class Role(StrEnum):
    MODEL = "model"
    OPTIMIZER = "optimizer"


_OPTIMIZER = re.compile(r"^(optim|opt$|opt_state)")
_NEITHER = re.compile(
    r"^(lr_|.*sched|.*scaler|.*rng|random|.*loader|dl_state|.*sampler|callback|loop|.*metric|best"
    r"|early|.*stopp|.*loss(es)?$|hyper|config|args|.*history|.*score|training_args|meta|train_state"
    r"|trainer_state|progress)"
)
_BUFFER = re.compile(
    r"(^|_)mask(ed)?(_|$)|^running_(mean|var)$|^num_batches_tracked$|inv_freq|_(buffer|cache|cached)$"
    r"|^(cos|sin)(_|$)|position_ids|token_type_ids|^(scale|zero_point|amax)(_|$)|_amax|min_val|max_val"
)
_WRAPPERS = ("app", "state", "checkpoint", "module", "trainer", "state_dict")


def role_of(path: str, name: str) -> Role | None:
    """Of the tensor `name` (dotted) in the file at `path` of the save."""
    places = [part for part in path.lower().split("/") if part]
    if places and _NEITHER.match(places[-1]):
        return None
    if any(_OPTIMIZER.match(place) for place in places):
        return Role.OPTIMIZER
    parts = [part for part in name.lower().split(".") if part]
    while len(parts) > 1 and parts[0] in _WRAPPERS and not parts[1].isdigit():
        parts = parts[1:]
    if parts and (_OPTIMIZER.match(parts[0]) or "optimizer" in parts[0]):
        return Role.OPTIMIZER
    if parts and _NEITHER.match(parts[0]) and len(parts) <= 4:
        return None
    if parts and _BUFFER.search(parts[-1]):
        return None
    return Role.MODEL if parts else None
