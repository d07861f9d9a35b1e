"""When an older save has proved a suspect one bad: the rule that operator and sidecar must share.

To be tried is no proof, and neither is a step or two beyond the point of the fault: a trainer whose
loss is no number makes them before it is stopped, and a fault that is called the same may come a
step later. What counts is new durable work beyond it, by a training that goes as it should. Pure.
"""

from __future__ import annotations

import re

from rtj_api.rules.blame import OUT_OF_MEMORY, SAME_SHARE_OUT_OF_MEMORY, SAME_STEPS
from rtj_api.wire import Report

_FENCE = re.compile(r"f(\d+)-")  # of a save's name


def point_beyond(step: int | None, *, alike: str) -> int | None:
    """The last step that would still be called the same place as `step` for faults of that kind."""
    if step is None:
        return None
    near = SAME_SHARE_OUT_OF_MEMORY * step if alike == OUT_OF_MEMORY else 0
    return step + max(SAME_STEPS, int(near))


def has_got_past(point: int | None, zero: Report) -> bool:
    """The attempt that rank 0's report tells of has a durable save of its own beyond `point` (None:
    any). A save without a step counts with the step of the progress file."""
    durable = zero.checkpoint
    if zero.divergence is not None or zero.fence is None or durable.last_durable_name is None:
        return False
    named = _FENCE.match(durable.last_durable_name)
    if named is None or int(named[1]) != zero.fence:
        return False
    sure = zero.progress.step if zero.progress.is_sure else None
    step = durable.last_durable_step if durable.last_durable_step is not None else sure
    return point is None or (step is not None and step > point)
