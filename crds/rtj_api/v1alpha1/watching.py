"""`recovery.verifyResume`, `.hang`, `.straggler` and `.stop`: what is done about a training that
goes on otherwise, slowly, or not at all, and how it is asked to end.

Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rtj_api.api_base import Api


class OnDivergence(StrEnum):
    ROLL_BACK = "RollBack"
    HOLD = "Hold"
    REPORT = "Report"


class OnDrift(StrEnum):
    HOLD = "Hold"
    REPORT = "Report"


class VerifyResume(Api):
    """Steps that are run twice around a restart are compared with their first pass, as far as the
    trainer tells of them (RTJ_PROGRESS_FILE, or its log)."""

    on_divergence: OnDivergence = Field(
        OnDivergence.ROLL_BACK,
        description=(
            "The loss is no number any more or exploded, or after a resume it is another training: "
            "RollBack stops it at once and goes on from the newest save before that, at the cost "
            "of a restart; Hold stops it and waits for a person; Report only tells. Of log lines "
            "only a loss that is no number is believed."
        ),
    )
    on_drift: OnDrift = Field(
        OnDrift.REPORT,
        description=(
            "Learning rate or data cursor are not what they were, or the loss lies a little beside "
            "its noise: Report (an event, and Degraded), or Hold, which stops it for a person."
        ),
    )


class OnHang(StrEnum):
    RESTART = "Restart"
    REPORT = "Report"


class StackSignal(StrEnum):
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"


class Hang(Api):
    """A gang that makes no step, prints nothing and saves nothing for far longer than it takes.

    By itself: 30 s or three times its slowest usual step where no process of it does anything (6 s
    where one is stopped by a signal), half an hour where one still works, waits for a disk or
    saves. Before the first steps, when no pace is known: 10 minutes and two hours.
    """

    on_hang: OnHang = Field(
        OnHang.RESTART,
        description="Restart it in place, on the job's budget, or Report it only (Degraded).",
    )
    timeout_seconds: float | None = Field(
        None,
        ge=2,
        le=604_800,
        description=(
            "A limit of your own, whatever its processes are about: no sign of life of any rank "
            "for so long is a hang. Absent: from the job's own pace."
        ),
    )
    stack_signal: StackSignal | None = Field(
        None,
        description=(
            "The signal for which the trainer has registered a dump of its stacks: "
            "faulthandler.register(signal.SIGUSR2). It is sent to a hung process before the "
            "restart if that process catches it. Not needed where the image has py-spy."
        ),
    )


class OnSlow(StrEnum):
    REPORT = "Report"
    REPLACE = "Replace"


class Straggler(Api):
    """A rank whose own work in a step, by `step_seconds` of the progress files, takes longer than
    one and a half times the median of the ranks: all others wait for it."""

    on_slow: OnSlow = Field(
        OnSlow.REPORT,
        description=(
            "Report only tells (Degraded). Replace: a rank that was slow for 96 steps and a minute "
            "gets a new pod on another node after the next durable save, free of the job's "
            "budget. If it is as slow there the rank is slow and not its node, and it is not "
            "moved again; another rank is moved only once a move has helped, or six hours later. "
            "It needs room on another node, best a spare."
        ),
    )


class StopBy(StrEnum):
    """How a trainer is told of the step at which all ranks save and end."""

    NOTHING = "Nothing"
    FILE = "File"
    SIGTERM = "SIGTERM"
    SIGUSR1 = "SIGUSR1"


class Stop(Api):
    """Before a pod that is drained, evicted or preempted, or whose node has given notice, is gone,
    and when the job is suspended: one step at which all ranks save and end with 0, if the time
    suffices. docs/drain.md has the few lines that a trainer needs for it."""

    by: StopBy = Field(
        StopBy.NOTHING,
        description=(
            "How your trainer is told. Nothing: it is not, and a pod that is ended gets SIGTERM at "
            "once. File: it looks at RTJ_STOP_FILE after each step. SIGTERM, SIGUSR1: it is sent "
            "that signal, when the file is there. With any but Nothing the SIGTERM of an ending "
            "pod is held back for 5 s, and until that step where one was agreed on. Pods made "
            "before a change keep what they were made with."
        ),
    )
