"""How a trainer fares, as its sidecar tells: what came of a resume, whether it gives signs of life.

Times are Unix seconds. Must never do I/O.
"""

from __future__ import annotations

from pydantic import Field

from rtj_api.rules.divergence import Kind
from rtj_api.rules.flight import Call, Flight, Group
from rtj_api.rules.hang import Standing
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


class PaceView(Wire):
    """See `rules.hang.Pace`: seconds between signs of a step."""

    usual: float | None = None
    longest: float = 0.0
    survived: float = 0.0


class StallView(Wire):
    """This rank's trainer gives no sign of life since `since`: no step, line or save that moves."""

    standing: Standing
    since: float
    fell_at: float | None = None  # its processes fell still
    pace: PaceView = Field(default_factory=PaceView)
    stacks: list[str] = Field(default_factory=list)  # what they are doing, bounded


class CallView(Wire):
    """A collective operation that has not ended, see `rules.flight.Call`."""

    seq: int
    op: str = ""
    sizes: str = ""


class FlightGroup(Wire):
    """A process group at one process, see `rules.flight.Group`."""

    name: str
    begun: int = 0
    ended: int = 0
    open: CallView | None = None


class FlightView(Wire):
    """What PyTorch's flight recorder wrote at one process of this pod in this attempt. Bounded."""

    process: int  # its rank in the whole job
    groups: list[FlightGroup] = Field(default_factory=list)

    @property
    def flight(self) -> Flight:
        """As the rules take it."""
        return Flight(
            process=self.process,
            groups=[
                Group(
                    name=group.name,
                    begun=group.begun,
                    ended=group.ended,
                    open=Call(seq=group.open.seq, op=group.open.op, sizes=group.open.sizes)
                    if group.open is not None
                    else None,
                )
                for group in self.groups
            ],
        )
