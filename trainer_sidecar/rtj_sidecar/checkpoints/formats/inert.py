"""What a pickle would have made, without making it: inert stand-ins and harmless containers.

Must never import, look up or call a name that a pickle gives.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

_KEY_TYPES = (str, int, float, bytes, bool, type(None))
_KEY_BITS, _KEY_PARTS = 256, 64
"""A larger number or tuple is hashed anew each time, which a pickle can ask for a million times."""


@dataclass(slots=True, eq=False)
class Stub:
    """Something that would have been a class, a call or an object. Compared by identity."""

    name: str
    """`module.qualname` of the class or function."""
    args: tuple[Any, ...] = ()
    state: dict[Any, Any] | None = None
    """Attributes that BUILD would have set, once there are any."""

    def get(self, key: str) -> Any:
        return self.state.get(key) if self.state else None

    def attributes(self) -> dict[Any, Any]:
        """The dict that attributes go into, made on first use."""
        if self.state is None:
            self.state = {}
        return self.state


def safe_key(value: Any) -> Any:
    """A key that can be hashed at once and without recursion: others are replaced by a Stub."""
    if isinstance(value, Stub) or _is_cheap(value):
        return value
    if isinstance(value, tuple) and len(value) <= _KEY_PARTS and all(map(_is_cheap, value)):
        return value
    return Stub("unhashable-key")


def _is_cheap(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= _KEY_BITS
    return isinstance(value, _KEY_TYPES)


def inert_call(target: Any, args: Any) -> Any:
    """What a call would have made, without calling: a plain container where that is harmless."""
    name = target.name if isinstance(target, Stub) else "unknown"
    given = args if isinstance(args, tuple) else (args,)
    if name in _DICTS and not given:
        return {}
    # How protocols below 3 write bytes.
    if name in ("builtins.bytes", "__builtin__.bytes") and not given:
        return b""
    if name == "_codecs.encode" and given and isinstance(given[0], str):
        return given[0].encode("latin1", "replace")
    if name in _WRAPPERS and len(given) == 1 and isinstance(given[0], tuple | list):
        return given[0]
    if name in _SCALARS and len(given) == 2:
        return _numpy_scalar(given[0], given[1])
    if name == "copyreg._reconstructor" and given and isinstance(given[0], Stub):
        return Stub(given[0].name)
    return Stub(name, given)


def _numpy_scalar(dtype: Any, raw: Any) -> Any:
    """The number in a numpy scalar, where its type is a plain integer or float."""
    code = dtype.args[0] if isinstance(dtype, Stub) and dtype.args else None
    shape = _NUMPY.get(code) if isinstance(code, str) else None
    if shape is None or not isinstance(raw, bytes) or len(raw) != struct.calcsize(shape):
        return Stub("numpy-scalar")
    return struct.unpack(shape, raw)[0]


_NUMPY = {"i1": "<b", "i2": "<h", "i4": "<i", "i8": "<q", "u1": "<B", "u2": "<H", "u4": "<I"}
_NUMPY |= {"u8": "<Q", "f2": "<e", "f4": "<f", "f8": "<d"}
_DICTS = {"collections.OrderedDict", "builtins.dict", "__builtin__.dict", "collections.Counter"}
_WRAPPERS = {"torch.Size", "builtins.list", "builtins.tuple", "builtins.set", "builtins.frozenset"}
_WRAPPERS |= {"__builtin__.list", "__builtin__.tuple", "__builtin__.set"}
_SCALARS = {"numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"}
