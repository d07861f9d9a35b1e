"""How a process ended, in words, and whose fault that is.

Both the operator and `rtj run` restart trainers, so both must read an exit alike. The table is
`failures-and-formulas` D1 in short: a code names a symptom, never a culprit, and torchrun turns
every death of a worker into 1; so a code alone never ends a job. Pure.
"""

from __future__ import annotations

import signal as _signal
from dataclasses import dataclass

from rtj_api.reasons import Charge, Reason

# What a person should look at first, by exit code as a shell sees it.
_HINTS: dict[int, str] = {
    1: "an exception in the script, or any worker's death under torchrun: see the log's tail",
    2: "wrong command line: check command, args and checkpoint.resumeArgs",
    16: "Megatron asks to run the step again on another GPU",
    17: "Megatron rejected the result of a step",
    75: "temporary failure, by the script's own word",
    77: "permission denied, by the script's own word",
    78: "wrong configuration, by the script's own word",
    93: "the launcher asks not to be restarted",
    124: "timeout(1) expired",
    126: "the command is not executable: check the image and command",
    127: "the command was not found: check the image and command",
    128: "the container could not start: check the image (it needs /bin/sh), command and mounts",
    255: "exit(-1), or the runtime lost track of it",
}
_SIGNAL_HINTS: dict[int, str] = {
    4: "an instruction this CPU does not have",
    6: "abort: an NCCL watchdog, a CUDA assertion or glibc",
    7: "bus error: often a full /dev/shm",
    8: "arithmetic error in native code",
    9: "killed: by the kernel, a person or a grace that ended",
    11: "segmentation fault in native code",
    13: "broken pipe",
    15: "asked to end",
    24: "CPU limit",
    25: "file size limit",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """One end of a process: `code` 0..255 as a shell sees it, `signal` the one that killed it."""

    code: int
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class ExitVerdict:
    """What an exit means: the reason, who is charged, and a sentence for people."""

    reason: Reason
    charge: Charge
    message: str


def from_returncode(returncode: int) -> Exit:
    """A Python returncode (negative: killed by that signal) as an Exit."""
    if returncode < 0:
        return Exit(128 - returncode, -returncode)
    return from_code(returncode)


def from_code(code: int) -> Exit:
    """An exit code of a container or shell as an Exit.

    129..192 are 128 + signal by convention; 241..254 are 256 - signal, from a wrapper that passed
    a negative Python returncode to exit().
    """
    code &= 0xFF
    if 129 <= code <= 192:
        return Exit(code, code - 128)
    if 241 <= code <= 254:
        return Exit(code, 256 - code)
    return Exit(code)


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 40` for one without a name."""
    try:
        return _signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe(end: Exit) -> str:
    """`exit code 1 (…)` or `killed by SIGSEGV (…)`, with what to look at first."""
    if end.signal is not None:
        hint = _SIGNAL_HINTS.get(end.signal)
        text = f"killed by {signal_name(end.signal)}, exit code {end.code}"
    else:
        hint = _HINTS.get(end.code)
        text = f"exit code {end.code}"
    return f"{text} ({hint})" if hint else text


def judge(end: Exit, *, out_of_memory: bool = False) -> ExitVerdict | None:
    """The verdict on an exit; None for a plain exit 0, which is no fault by itself.

    Memory comes first: the kernel may kill a child while the parent exits with any code.
    """
    if out_of_memory and end != Exit(0):
        return ExitVerdict(
            Reason.OUT_OF_MEMORY,
            Charge.USER,
            f"out of memory, {describe(end)}: raise the container's memory limit, or use fewer "
            "data loader workers",
        )
    if end.signal is not None:
        return ExitVerdict(Reason.TRAINER_SIGNALED, Charge.USER, describe(end))
    if end.code != 0:
        return ExitVerdict(Reason.TRAINER_FAILED, Charge.USER, describe(end))
    return None
