"""The few parts of the protocol buffer wire format that TensorFlow's index needs. Bounded by what
it is given; never follows a length that leaves it."""

from __future__ import annotations

from collections.abc import Iterator

from rtj_sidecar.checkpoints.formats.base import MalformedError


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value below 2**64, position after it). Raises MalformedError."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise MalformedError("a number in it is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise MalformedError("a number in it is longer than 64 bits")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of each field: an int for a varint or fixed one, bytes for the rest.

    Raises MalformedError where it is no such message.
    """
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind, value = tag & 7, b""
        if kind == 0:
            number, at = varint(data, at)
            yield tag >> 3, number
            continue
        if kind == 2:
            length, at = varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise MalformedError("it is no protocol buffer")
        value = data[at : at + length]
        if len(value) != length:
            raise MalformedError("a field in it is cut off")
        at += length
        yield tag >> 3, value if kind == 2 else int.from_bytes(value, "little")
