"""Exit codes: what they say, and never more than they say."""

from __future__ import annotations

import pytest
from rtj_api.reasons import Charge, Reason
from rtj_api.rules import exits
from rtj_api.rules.exits import Exit
from rtj_api.rules.origins import Origin

CODES = {
    "clean": (0, Exit(0)),
    "exception": (1, Exit(1)),
    "usage": (2, Exit(2)),
    "not found": (127, Exit(127)),
    "could not start": (128, Exit(128)),
    "hangup": (129, Exit(129, 1)),
    "abort": (134, Exit(134, 6)),
    "killed": (137, Exit(137, 9)),
    "segfault": (139, Exit(139, 11)),
    "terminated": (143, Exit(143, 15)),
    "real-time signal": (192, Exit(192, 64)),
    "application": (193, Exit(193)),
    "application high": (240, Exit(240)),
    "wrapped TERM": (241, Exit(241, 15)),
    "wrapped SEGV": (245, Exit(245, 11)),
    "wrapped KILL": (247, Exit(247, 9)),
    "exit(-1)": (255, Exit(255)),
    "sys.exit(256) is 0": (256, Exit(0)),
}


@pytest.mark.parametrize(("code", "expected"), CODES.values(), ids=CODES.keys())
def test_a_code_is_read_as_a_shell_would(code: int, expected: Exit) -> None:
    assert exits.from_code(code) == expected


@pytest.mark.parametrize(
    ("returncode", "expected"),
    [(-9, Exit(137, 9)), (-11, Exit(139, 11)), (-15, Exit(143, 15)), (0, Exit(0)), (3, Exit(3))],
)
def test_a_python_returncode_is_read(returncode: int, expected: Exit) -> None:
    assert exits.from_returncode(returncode) == expected


VERDICTS = {
    "exception": (Exit(1), False, Reason.TRAINER_FAILED),
    "signal": (Exit(139, 11), False, Reason.TRAINER_SIGNALED),
    "child killed for memory, parent exits 1": (Exit(1), True, Reason.OUT_OF_MEMORY),
    "whole container killed for memory": (Exit(137, 9), True, Reason.OUT_OF_MEMORY),
}


@pytest.mark.parametrize(("end", "oom", "reason"), VERDICTS.values(), ids=VERDICTS.keys())
def test_the_verdict_names_the_reason_and_charges_the_job(
    end: Exit, oom: bool, reason: Reason
) -> None:
    verdict = exits.judge(end, out_of_memory=oom)
    assert verdict is not None
    assert verdict.reason == reason
    assert verdict.charge == Charge.USER
    assert str(end.code) in verdict.message


@pytest.mark.parametrize("oom", [True, False])
def test_exit_zero_is_no_fault(oom: bool) -> None:
    assert exits.judge(Exit(0), out_of_memory=oom) is None


def test_every_code_gets_a_sentence() -> None:
    for code in range(1, 256):
        verdict = exits.judge(exits.from_code(code))
        assert verdict is not None
        assert verdict.message.count(str(code)) >= 1


# One word of the hint for each code that the reference names: what tells it from its neighbours.
HINTS: dict[int, str] = {
    1: "torchrun",
    2: "command line",
    14: "infoROM",
    16: "another GPU",
    17: "rejected the result",
    64: "usage",
    74: "input or output",
    75: "temporary",
    77: "permission",
    78: "configuration",
    93: "not to be restarted",
    124: "timeout",
    125: "that starts the command",
    126: "not executable",
    127: "not found",
    128: "could not start",
    129: "hang-up",
    130: "interrupted",
    131: "stacks",
    132: "this CPU",
    133: "breakpoint",
    134: "NCCL watchdog",
    135: "/dev/shm",
    136: "arithmetic",
    137: "the kernel",
    138: "notice",
    139: "segmentation",
    140: "notice",
    141: "pipe",
    142: "alarm",
    143: "asked to end",
    152: "CPU limit",
    153: "quota",
    159: "seccomp",
    201: "driver",
    202: "holds the GPU",
    241: "asked to end",
    245: "segmentation",
    247: "the kernel",
    249: "/dev/shm",
    250: "NCCL watchdog",
    255: "exit(-1)",
    # The rows that name a range.
    **dict.fromkeys((*range(3, 14), 15, *range(18, 64), *range(79, 93)), "script's own"),
    **dict.fromkeys((*range(94, 124), *range(193, 201), *range(203, 241)), "script's own"),
    **dict.fromkeys(range(65, 74), "script's own word"),
    **dict.fromkeys((*range(144, 152), *range(156, 159)), "find who sends it"),
    **dict.fromkeys(range(160, 193), "real-time"),
}


@pytest.mark.parametrize(("code", "word"), sorted(HINTS.items()))
def test_every_code_that_the_reference_names_has_a_hint(code: int, word: str) -> None:
    assert word in exits.describe(exits.from_code(code)).partition("(")[2]


def test_exit_zero_has_no_hint() -> None:
    assert exits.describe(Exit(0)) == "exit code 0"


@pytest.mark.parametrize(
    ("code", "origin"),
    [
        (1, Origin.OPEN),
        (2, Origin.PROGRAM),
        (16, Origin.NODE),
        (17, Origin.CHECKPOINT),
        (42, Origin.OPEN),
        (75, Origin.PASSING),
        (78, Origin.PROGRAM),
        (93, Origin.PROGRAM),
        (124, Origin.PASSING),
        (127, Origin.PLACE),
        (134, Origin.PLACE),
        (136, Origin.PROGRAM),
        (137, Origin.PASSING),
        (139, Origin.PLACE),
        (143, Origin.PASSING),
        (245, Origin.PLACE),  # 256 - SIGSEGV, from a wrapper
        (247, Origin.PASSING),
    ],
)
def test_a_code_says_where_the_fault_may_come_from(code: int, origin: Origin) -> None:
    assert exits.origin_of(exits.from_code(code)) == origin


def test_the_same_end_has_the_same_word() -> None:
    assert exits.label(exits.from_code(245)) == exits.label(exits.from_returncode(-11)) == "SIGSEGV"
    assert exits.label(exits.from_code(3)) == "exit 3"
