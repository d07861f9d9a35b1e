"""Is there a NaN in these bytes? Floating-point tensors read as bytes, as fast as a hash pass.

A NaN or an infinity has an exponent of ones only, so every value whose highest byte is another can
be passed over: a strided slice and `find` look at one byte of each value, at memory speed and with
no numpy. Only a piece where such a byte occurs is looked at bit by bit. Forms: IEEE 754 binary16,
binary32, binary64, and bfloat16 (the upper half of a binary32); little-endian. Memory: one buffer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from rtj_sidecar.checkpoints.formats.base import MalformedError, Window
from rtj_sidecar.checkpoints.types import Reason

PIECE = 256 * 1024
"""Bytes looked at together: the slices then stay in a core's cache."""
SAMPLE = 4096
"""Bytes at the beginning of each piece of which denormals are counted."""


def _table(is_one: Mapping[int, bool] | set[int]) -> bytes:
    return bytes(1 if value in is_one else 0 for value in range(256))


def _where(mask: int, value: int) -> bytes:
    return _table({byte for byte in range(256) if byte & mask == value})


def _any_of(mask: int) -> bytes:
    return _table({byte for byte in range(256) if byte & mask})


@dataclass(frozen=True, slots=True)
class Form:
    """How one kind of float lies in its bytes, lowest first. `top`: values of the highest byte
    that a NaN or an infinity can have. `ones`, `zero`: (byte, table) pairs that all hold where
    the exponent is all ones, all zero. `mantissa`: pairs of which one holds where it is not 0."""

    size: int
    top: tuple[int, ...]
    ones: tuple[tuple[int, bytes], ...]
    zero: tuple[tuple[int, bytes], ...]
    mantissa: tuple[tuple[int, bytes], ...]
    rare_denormals: bool = True
    """False for binary16, where small healthy weights are denormal."""


_NOT_ZERO = _any_of(0xFF)
FORMS: dict[str, Form] = {
    "F16": Form(
        2,
        tuple(byte for byte in range(256) if byte & 0x7C == 0x7C),
        ((1, _where(0x7C, 0x7C)),),
        ((1, _where(0x7C, 0)),),
        ((1, _any_of(0x03)), (0, _NOT_ZERO)),
        rare_denormals=False,
    ),
    "BF16": Form(
        2,
        (0x7F, 0xFF),
        ((1, _where(0x7F, 0x7F)), (0, _where(0x80, 0x80))),
        ((1, _where(0x7F, 0)), (0, _where(0x80, 0))),
        ((0, _any_of(0x7F)),),
    ),
    "F32": Form(
        4,
        (0x7F, 0xFF),
        ((3, _where(0x7F, 0x7F)), (2, _where(0x80, 0x80))),
        ((3, _where(0x7F, 0)), (2, _where(0x80, 0))),
        ((2, _any_of(0x7F)), (1, _NOT_ZERO), (0, _NOT_ZERO)),
    ),
    "F64": Form(
        8,
        (0x7F, 0xFF),
        ((7, _where(0x7F, 0x7F)), (6, _where(0xF0, 0xF0))),
        ((7, _where(0x7F, 0)), (6, _where(0xF0, 0))),
        ((6, _any_of(0x0F)), *((byte, _NOT_ZERO) for byte in range(6))),
    ),
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """What was seen in one tensor. `sampled`: values of which `denormal` were counted."""

    nan: bool = False
    inf: bool = False
    sampled: int = 0
    denormal: int = 0


def look(window: Window, offset: int, length: int, form: Form, buffer: bytearray) -> Numbers:
    """Reads `length` bytes at `offset` once, up to the first NaN.

    Raises MalformedError (Truncated) where the window is shorter.
    """
    if offset < 0 or length < 0 or offset + length > window.size:
        raise MalformedError("a tensor lies outside of its file", reason=Reason.TRUNCATED)
    inf, sampled, denormal = False, 0, 0
    view = memoryview(buffer)[: len(buffer) // PIECE * PIECE]
    while length:
        count = _fill(window, offset, view[: min(length, len(view))])
        for at in range(0, count, PIECE):
            stop = min(at + PIECE, count)
            highest = buffer[at + form.size - 1 : stop : form.size]
            if any(byte in highest for byte in form.top):
                piece = buffer[at:stop]
                special = _all(piece, form.size, form.ones)
                nan = special & _one(piece, form.size, form.mantissa)
                if nan:
                    return Numbers(True, inf, sampled, denormal)
                inf = inf or special != 0
            if form.rare_denormals:
                sample = buffer[at : min(at + SAMPLE, stop)]
                tiny = _all(sample, form.size, form.zero) & _one(sample, form.size, form.mantissa)
                denormal += tiny.bit_count()
                sampled += len(sample) // form.size
        offset += count
        length -= count
    return Numbers(False, inf, sampled, denormal)


def _fill(window: Window, offset: int, view: memoryview) -> int:
    """Reads all of `view`, so that every piece begins with a whole value."""
    done = 0
    while done < len(view):
        count = os.preadv(window.descriptor, [view[done:]], window.start + offset + done)
        if not count:
            raise MalformedError("it became shorter while it was read", reason=Reason.TRUNCATED)
        done += count
    return done


def _all(piece: bytearray, size: int, pairs: tuple[tuple[int, bytes], ...]) -> int:
    """A number with a 1 in the byte of each value for which every pair holds."""
    found = -1
    for byte, table in pairs:
        found &= int.from_bytes(piece[byte::size].translate(table), "little")
    return found


def _one(piece: bytearray, size: int, pairs: tuple[tuple[int, bytes], ...]) -> int:
    """A number with a 1 in the byte of each value for which some pair holds."""
    found = 0
    for byte, table in pairs:
        found |= int.from_bytes(piece[byte::size].translate(table), "little")
    return found
