"""What sidecar and supervisor write for each other into the run directory of a pod.

Times are Unix seconds. Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rtj_api.contract import CONTRACT_VERSION
from rtj_api.wire.base import Wire


class Go(Wire):
    """Start the trainer, once per attempt. `env` is added to the container's own; `$(RTJ_…)` in
    arguments is expanded from it; `extra_args` are appended to the command."""

    attempt: int
    env: dict[str, str]
    extra_args: list[str] = Field(default_factory=list)
    quiet_probes_until_running: bool = True


class Stop(Wire):
    """End the trainer of any attempt up to `attempt`: SIGTERM then SIGKILL after `grace_seconds`;
    None means SIGKILL at once. Everything else in the container's cgroup goes too."""

    attempt: int
    grace_seconds: float | None = None


class StopStep(Wire):
    """RTJ_STOP_FILE, for the trainer of that attempt: save at the end of `step`, then end with 0
    or wait. The supervisor reads it too: it sends `signal` once, and holds the SIGTERM of an
    ending pod back until `until`."""

    attempt: int
    step: int
    reason: str
    until: float | None = None
    signal: int | None = None


class Trial(Wire):
    """Run the user's probe on the restored save, once for each `id`, while no trainer runs. It has
    its own session; whatever it leaves running is killed. A Stop of its attempt ends it."""

    id: str
    attempt: int
    command: list[str]
    env: dict[str, str] = Field(default_factory=dict)
    timeout_seconds: float


class Look(Wire):
    """Say what the trainer's processes are doing, once for each `id`. `signal`: the one for which
    they have registered a dump of their stacks; sent only to a process that catches it."""

    id: str
    signal: int | None = None


class Release(Wire):
    """PID 1 of the trainer's container may exit, with `message` as its termination message.

    A code other than 0 passes a failure on to the kubelet, which starts the container again; the
    file is then removed by the supervisor, for it speaks of this one end.
    """

    message: str
    code: int = 0


class SuperviseConfig(Wire):
    """What the supervisor must know before any directive. File supervise.json."""

    path: str  # the checkpoint directory
    trainer_grace_seconds: float
    post_start: list[str] = Field(default_factory=list)  # run after each start, as probe words
    hold_term_seconds: float = 0.0  # a SIGTERM is passed on so late: a stop step may follow it


class TrainerState(StrEnum):
    NONE = "none"  # this container has started no trainer
    RUNNING = "running"
    EXITED = "exited"


class TrainerView(Wire):
    """The trainer of the last attempt that this pod started."""

    state: TrainerState = TrainerState.NONE
    attempt: int = 0
    pid: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None  # as Python's returncode: negative for a signal
    signal: int | None = None
    oom_kills: int = 0  # processes killed for memory in this container's cgroup, this attempt
    oom_of_node: bool = False  # … while it was below its limit: the node's memory was spent
    asked_to_stop: bool = False  # a Stop, or a signal forwarded, came before the end
    container_restarted: bool = False  # the container died under the trainer (OOM of the whole)
    unhealthy: str | None = None  # why the supervisor ended it: a liveness probe, a postStart hook
    memory_limit_bytes: int | None = None  # of the container, where the kernel tells
    tail: list[str] = Field(default_factory=list)  # last lines of output, bounded
    error: str | None = None  # torchelastic error file's message, bounded


class TrialView(Wire):
    """How far the last Trial is. It passed where it ended with 0."""

    id: str
    ended: bool = False
    exit_code: int | None = None  # as Python's returncode; None where it never ran or was lost
    timed_out: bool = False
    stopped: bool = False  # by a Stop, or because the pod ends: says nothing of the save
    lost: bool = False  # the container died under it
    not_run: str | None = None  # why its command could not be executed
    oom_kills: int = 0
    tail: list[str] = Field(default_factory=list)  # last lines of output, bounded


class StillView(Wire):
    """Since when the trainer's processes do nothing that the kernel counts."""

    kind: str  # stopped (by a signal) | blocked (some wait for a disk) | still
    since: float
    network_at: float | None = None  # when the pod's network last moved anything worth a name


class StacksView(Wire):
    """What the trainer's processes were doing at the Look of that id. Bounded."""

    id: str
    done: bool = False
    lines: list[str] = Field(default_factory=list)


class FlightFile(Wire):
    """A copy of what PyTorch's flight recorder wrote in this attempt. `file`: below the run
    directory. `process`: whose it is, by its rank in the whole job."""

    process: int
    file: str
    at: float  # when it was written


class SupervisorState(Wire):
    version: int = CONTRACT_VERSION
    boot_id: str = Field(alias="bootID")
    sequence: int  # rises with each write
    pid: int
    uid: int
    gid: int
    python: str  # its version; empty where a shell supervises, for want of a Python
    term_received_at: float | None = None  # the pod is being ended
    stopped_attempt: int = 0  # no trainer of an attempt up to this runs or will be started
    lingering: int = 0  # processes left by a trainer that ended, which do not die
    trainer: TrainerView = Field(default_factory=TrainerView)
    trial: TrialView | None = None
    # Paths relative to the directory; None: this supervisor cannot say.
    open_for_writing: list[str] | None = Field(default_factory=list)
    still: StillView | None = None  # None: it works, or nobody can say
    stacks: StacksView | None = None
    flights: list[FlightFile] = Field(default_factory=list)
    written_at: float
