"""How a process ended, in words, and whose fault that is.

Both the operator and `rtj run` restart trainers, so both must read an exit alike. The table is
`failures-and-formulas` D1 in short: a code names a symptom, never a culprit, and torchrun turns
every death of a worker into 1; so a code alone never ends a job at its first fault. Pure.
"""

from __future__ import annotations

import signal as _signal
from dataclasses import dataclass

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.origins import Origin

# What a person should look at first, by exit code as a shell sees it: the launchers' own codes, the
# shell's, and those of sysexits.h (64..78).
_HINTS: dict[int, str] = {
    1: "an exception in the script, or any worker's death under torchrun: see the log's tail",
    2: "wrong command line: check command, args and checkpoint.resumeArgs",
    14: "under DLRover: the GPU's infoROM is corrupted; else the script's own code",
    16: "Megatron asks to run the step again on another GPU",
    17: "Megatron rejected the result of a step",
    64: "wrong usage, by the script's own word: check command, args and checkpoint.resumeArgs",
    65: "wrong input data, by the script's own word",
    66: "an input is missing, by the script's own word: check its paths and mounts",
    67: "an unknown user, by the script's own word",
    68: "an unknown host, by the script's own word: check addresses and DNS",
    69: "a service cannot be reached, by the script's own word",
    70: "an internal error, by the script's own word: see the log's tail",
    71: "the operating system refused something, by the script's own word",
    72: "a file of the system is missing, by the script's own word: check the image",
    73: "an output cannot be made, by the script's own word: check mounts and permissions",
    74: "input or output failed, by the script's own word: check its disk, mounts and store",
    75: "temporary failure, by the script's own word",
    76: "a peer answered against the protocol, by the script's own word",
    77: "permission denied, by the script's own word",
    78: "wrong configuration, by the script's own word",
    93: "the launcher asks not to be restarted",
    124: "timeout(1) expired: the command it wraps hung, or its limit is too short",
    125: "the program that starts the command (timeout, env, a container runtime) failed itself",
    126: "the command is not executable: check the image and command",
    127: "the command was not found: check the image and command",
    128: "the container could not start: check the image (it needs /bin/sh), command and mounts",
    201: "under DLRover: the GPU's driver failed; else the script's own code",
    202: "under DLRover: another process still holds the GPU; else the script's own code",
    255: "exit(-1), a failed ssh, or the runtime lost track of it",
}
_OWN_CODE = "a code of the script's own: see the log's tail"
_SIGNAL_HINTS: dict[int, str] = {
    1: "hang-up: its terminal or launcher went away, or someone sent it",
    2: "interrupted: someone or a launcher sent it, as Ctrl-C does",
    3: "quit: someone asked for a dump of its stacks and its end",
    4: "an instruction this CPU does not have",
    5: "a breakpoint or a failed check in native code",
    6: "abort: an NCCL watchdog, a CUDA assertion or glibc",
    7: "bus error: often a full /dev/shm, or a mapped file that was cut short",
    8: "arithmetic error in native code",
    9: "killed: by the kernel, a person or a grace that ended",
    10: "SIGUSR1 is often a scheduler's notice ahead of its end: the script does not handle it",
    11: "segmentation fault in native code",
    12: "SIGUSR2 is often a scheduler's notice ahead of its end: the script does not handle it",
    13: "broken pipe: the reader of its output went away",
    14: "an alarm that the script set expired and is not handled",
    15: "asked to end",
    24: "CPU limit: see ulimit -t",
    25: "file size limit, or a quota of the disk: see ulimit -f",
    26: "a timer of CPU time that the script set expired and is not handled",
    27: "a profiler's timer went on after its handler was gone",
    31: "a system call that the pod's seccomp profile forbids",
}
_ORIGINS: dict[int, Origin] = {
    16: Origin.NODE,  # Megatron's contract
    17: Origin.CHECKPOINT,  # Megatron's: never go on from what it has just computed
    **dict.fromkeys((2, 64, 65, 66, 77, 78, 93), Origin.PROGRAM),
    **dict.fromkeys((68, 69, 74, 75, 124, 255), Origin.PASSING),
    **dict.fromkeys((125, 126, 127, 128), Origin.PLACE),
}
_SIGNAL_ORIGINS: dict[int, Origin] = {
    **dict.fromkeys((8, 25, 31), Origin.PROGRAM),
    **dict.fromkeys((4, 5, 6, 7, 11), Origin.PLACE),
}
_RARE_SIGNAL = "a signal that seldom ends a process: find who sends it"
_REAL_TIME_SIGNAL = "a real-time signal: a library or another program sends it"
_FIRST_REAL_TIME = 32


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


def is_named(end: Exit) -> bool:
    """The tables have a row for exactly this code or signal."""
    if end.signal is not None:
        return end.signal in _SIGNAL_HINTS
    return end.code in _HINTS


def origin_of(end: Exit) -> Origin:
    """Where such an end may come from, where no last words say more. A signal that somebody sends
    says nothing of the program."""
    if end.signal is not None:
        return _SIGNAL_ORIGINS.get(end.signal, Origin.PASSING)
    return _ORIGINS.get(end.code, Origin.OPEN)


def label(end: Exit) -> str:
    """`exit 1` or `SIGSEGV`: the same word for the same end."""
    return signal_name(end.signal) if end.signal is not None else f"exit {end.code}"


def describe(end: Exit) -> str:
    """`exit code 1 (…)` or `killed by SIGSEGV (…)`, with what to look at first."""
    if end.signal is not None:
        other = _REAL_TIME_SIGNAL if end.signal >= _FIRST_REAL_TIME else _RARE_SIGNAL
        hint = _SIGNAL_HINTS.get(end.signal, other)
        return f"killed by {signal_name(end.signal)}, exit code {end.code} ({hint})"
    if end.code == 0:
        return "exit code 0"
    return f"exit code {end.code} ({_HINTS.get(end.code, _OWN_CODE)})"


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
