"""How a trainer fares, as its sidecar tells: what came of a resume. Must never do I/O."""

from __future__ import annotations

from rtj_api.rules.divergence import Kind
from rtj_api.rules.replay import Lost, ReplayState
from rtj_api.wire.base import Wire


class VerifyResume(Wire):
    """What a sidecar does with what it finds, see `recovery.verifyResume`."""

    stop_on_divergence: bool = True  # False: it is only told
    stop_on_drift: bool = False


class ReplayView(Wire):
    """Steps that were run twice since the last resume, against their first pass."""

    state: ReplayState
    compared: int = 0  # steps
    step: int | None = None  # the first that differs
    lost: Lost | None = None
    message: str = ""


class DivergenceView(Wire):
    """The loss of this attempt left the numbers, or exploded."""

    kind: Kind
    step: int | None = None  # of the first bad loss
    message: str
