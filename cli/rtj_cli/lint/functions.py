"""Operators and functions of `lint.cel`. Pure; another type raises TypeError or ValueError."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

_SUFFIXES: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{name: Decimal(1000) ** power for power, name in enumerate("kMGTPE", start=1)},
    **{f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGTPE", start=1)},
}


def quantity(text: str) -> Decimal:
    """A Kubernetes quantity as a number: `64Ki`, `500m`, `1e3`. Raises ValueError."""
    found = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([a-zA-Z]*)", text)
    if found is None or found[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is no quantity")
    return Decimal(found[1]) * _SUFFIXES[found[2]]


def _compared(left: Decimal, right: Decimal) -> int:
    return (left > right) - (left < right)


def _type(value: Any) -> str:
    names = ((bool, "bool"), (int, "int"), (float, "double"), (str, "string"), (Mapping, "map"))
    return next((f"type {name}" for kind, name in names if isinstance(value, kind)), "type list")


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, str)):
        return str(value)
    raise TypeError(f"{value!r} is no text")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _in(item: Any, of: Any) -> bool:
    if not isinstance(of, (list, Mapping)):
        raise TypeError(f"{of!r} has no parts")
    return item in of


BINARY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": operator.mod,
    "in": _in,
}

FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "size": len,
    "string": _string,
    "type": _type,
    "quantity": quantity,
    "compareTo": _compared,
    "matches": lambda text, pattern: re.search(pattern, _text(text)) is not None,
    "startsWith": lambda text, begin: _text(text).startswith(begin),
    "endsWith": lambda text, end: _text(text).endswith(end),
    "contains": lambda text, part: part in _text(text),
    "split": lambda text, by: _text(text).split(by),
    "substring": lambda text, begin, end=None: _text(text)[begin:end],
    "replace": lambda text, old, new: _text(text).replace(old, new),
    "join": lambda parts, by="": by.join(parts),
}
