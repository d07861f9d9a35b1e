"""NVIDIA's Xid numbers by what has to be done, as its catalog groups them.

Source: `failures-and-formulas` D4. A number in no row is new or has no published meaning. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rtj_api.rules.origins import Origin

RECOVERY_ACTION = 154
"""The driver tells what has to be done: trusted more than the table."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Numbers with one meaning. `is_sympathetic`: says nothing alone, follows another Xid."""

    numbers: frozenset[int]
    meaning: str
    remedy: str
    origin: Origin = Origin.NODE
    is_sympathetic: bool = False


def _numbers(*spans: int | tuple[int, int]) -> frozenset[int]:
    found: set[int] = set()
    for span in spans:
        found |= {span} if isinstance(span, int) else set(range(span[0], span[1] + 1))
    return frozenset(found)


BUCKETS: tuple[Bucket, ...] = (
    Bucket(
        _numbers(
            8,
            11,
            13,
            25,
            31,
            32,
            (39, 41),
            60,
            (68, 72),
            (75, 77),
            80,
            (82, 86),
            88,
            89,
            94,
            (96, 105),
            (126, 135),
            139,
        ),
        "a fault of the program on the GPU, or one that the GPU contained",
        "A restart is enough. If it comes again on this GPU within days, have the node looked at",
        Origin.PLACE,
    ),
    Bucket(
        _numbers(
            14,
            37,
            38,
            (43, 45),
            63,
            66,
            67,
            92,
            93,
            (106, 108),
            121,
            137,
            141,
            152,
            153,
            157,
            160,
            161,
        ),
        "a consequence of another Xid, or a note that a memory row was remapped",
        "Nothing by itself: look for another Xid before it",
        is_sympathetic=True,
    ),
    Bucket(
        _numbers(46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
        "the GPU has to be reset",
        "Drain the node and reset the GPU (`nvidia-smi --gpu-reset`)",
    ),
    Bucket(
        _numbers(48, 74, (144, 150), 171, 172),
        "a double-bit memory error, or a fault of NVLink",
        "Drain the node, reset the GPU, and ask for support if it comes again",
    ),
    Bucket(
        _numbers(79, 151),
        "the GPU has fallen off the bus, or its virtual machine must be restarted",
        "Drain and reboot the node; replace the GPU if it comes again",
    ),
    Bucket(
        _numbers(54),
        "the GPU's auxiliary power is not connected",
        "Have the node's power cables looked at",
    ),
    Bucket(
        _numbers(78),
        "the virtual GPU's driver could not start",
        "Update the driver of guest and host",
    ),
    Bucket(
        _numbers(154),
        "the driver names a recovery action itself, in that line",
        "Do what the line says: none, GPU reset, node reboot, or drain",
    ),
)


def bucket_of(number: int) -> Bucket | None:
    """The row of that Xid; None for one without a published meaning."""
    return next((bucket for bucket in BUCKETS if number in bucket.numbers), None)


_ACTION = re.compile(r"\bto 0x([0-9a-fA-F])\b")


def action_of(line: str) -> int | None:
    """What a line of Xid 154 asks for: 0 none, 1 GPU reset, 2 node reboot, 3 drain, 4 drain and
    reset, higher ones of newer drivers; None where it cannot be read."""
    found = _ACTION.search(line)
    return int(found[1], 16) if found is not None else None


_GPU = re.compile(
    r"\b(GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\b"
    r"|PCI:((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
)


def gpu_of(line: str) -> str | None:
    """The UUID or PCI address of the GPU that a line names; None where it names none."""
    found = _GPU.search(line)
    return (found[1] or found[2]) if found is not None else None
