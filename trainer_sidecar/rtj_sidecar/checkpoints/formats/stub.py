"""Reads a pickle without executing it: a pickle machine whose every class is inert.

`pickletools.genops` only decodes opcodes and never imports or calls anything; this gives them
meaning for data (numbers, text, containers) and turns each class, function and persistent id into
a `Stub` that remembers its name and arguments. Must never import, look up or call a name that it
reads. Caps on bytes, operations and seconds bound what a hostile file can cost.
"""

from __future__ import annotations

import io
import pickletools
import struct
import time
from typing import Any

from rtj_sidecar.checkpoints.formats.base import DEFAULT_CAPS, CapError, Caps, MalformedError
from rtj_sidecar.checkpoints.formats.inert import Stub, inert_call, safe_key
from rtj_sidecar.checkpoints.types import Reason

_NAME_LENGTH = 1000
_BYTES_OF_AN_OPERATION = 16


class _Mark:
    """The MARK opcode's place on the stack."""


_MARK = _Mark()


def load(data: bytes, *, caps: Caps = DEFAULT_CAPS) -> Any:
    """The value of the first pickle in `data`, with a Stub for all that is no plain data.

    Raises MalformedError where it is no pickle, cut off, or beyond a cap.
    """
    return load_from(data, caps=caps)[0]


def load_from(
    data: bytes,
    *,
    caps: Caps = DEFAULT_CAPS,
    start: int = 0,
    persistent: list[Any] | None = None,
) -> tuple[Any, int]:
    """As `load`, from `start`; also the position after the pickle. `persistent` takes what each
    persistent id names."""
    if len(data) - start > caps.pickle_bytes:
        raise CapError(f"its pickle of {len(data) - start} bytes is above the cap")
    machine = _Machine(caps=caps, persistent=persistent)
    stream = io.BytesIO(data)
    stream.seek(start)
    try:
        for opcode, argument, position in pickletools.genops(stream):
            if machine.step(opcode.name, argument):
                return machine.pop(), (position or 0) + 1
    except MalformedError:
        raise
    except (ValueError, IndexError, struct.error, OverflowError, AttributeError) as error:
        # The words of pickletools where the bytes end before the pickle does.
        cut = any(word in str(error) for word in ("exhausted", "remain", "not enough"))
        reason = Reason.TRUNCATED if cut else Reason.MALFORMED
        raise MalformedError(f"its pickle is broken: {error}", reason=reason) from error
    raise MalformedError("its pickle has no end", reason=Reason.TRUNCATED)


class _Machine:
    """Stack, memo and the meaning of each opcode."""

    def __init__(self, *, caps: Caps, persistent: list[Any] | None = None) -> None:
        self._persistent = persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._left = caps.pickle_operations
        self._deadline = time.monotonic() + caps.pickle_seconds

    def pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise MalformedError("its pickle takes from an empty stack")
        return self._stack.pop()

    def _top(self, kind: type | tuple[type, ...]) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise MalformedError("its pickle fills something that is no container")
        return self._stack[-1]

    def _since_mark(self) -> list[Any]:
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at] is _MARK:
                items = self._stack[at + 1 :]
                del self._stack[at:]
                return items
        raise MalformedError("its pickle misses a mark")

    def _spend(self, count: int = 1) -> None:
        before = self._left
        self._left -= count
        if self._left < 0:
            raise CapError("its pickle has more operations than the cap")
        if before // 4096 != self._left // 4096 and time.monotonic() > self._deadline:
            raise CapError("its pickle takes longer to read than the cap")

    def step(self, name: str, argument: Any) -> bool:
        """One opcode; True at STOP."""
        self._spend()
        if name in _PUSH:
            self._stack.append(argument)
        elif name in _CONSTANT:
            self._stack.append(_CONSTANT[name]())
        elif name in _TUPLES:
            items = [self.pop() for _ in range(_TUPLES[name])]
            self._stack.append(tuple(reversed(items)))
        elif name == "STOP":
            return True
        elif name not in ("PROTO", "FRAME"):
            handler = _HANDLERS.get(name)
            if handler is None:
                raise MalformedError(f"its pickle uses the opcode {name}")
            handler(self, argument)
        return False

    # --- memo ---

    def put(self, argument: Any) -> None:
        value = self.pop()
        self._stack.append(value)
        self._memo[int(argument)] = value

    def memoize(self, _: Any) -> None:
        self.put(len(self._memo))

    def get(self, argument: Any) -> None:
        if int(argument) not in self._memo:
            raise MalformedError("its pickle names a value that it never had")
        self._stack.append(self._memo[int(argument)])

    # --- stack ---

    def mark(self, _: Any) -> None:
        self._stack.append(_MARK)

    def drop(self, _: Any) -> None:
        if not self._stack:
            raise MalformedError("its pickle takes from an empty stack")
        self._stack.pop()

    def drop_to_mark(self, _: Any) -> None:
        self._since_mark()

    def dup(self, _: Any) -> None:
        value = self.pop()
        self._stack += [value, value]

    # --- containers ---

    def list_(self, _: Any) -> None:
        self._stack.append(self._since_mark())

    def tuple_(self, _: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def dict_(self, _: Any) -> None:
        items = self._since_mark()
        self._stack.append({})
        self._fill(self._stack[-1], items)

    def frozenset_(self, _: Any) -> None:
        self._stack.append(self._since_mark())

    def append(self, _: Any) -> None:
        value = self.pop()
        self._extend([value])

    def appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        self._spend(len(items))
        target = self._top((list, Stub))
        if isinstance(target, list):
            target.extend(items)

    def setitem(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self._fill(self._top((dict, Stub)), [key, value])

    def setitems(self, _: Any) -> None:
        items = self._since_mark()
        self._fill(self._top((dict, Stub)), items)

    def _fill(self, target: dict[Any, Any] | Stub, items: list[Any]) -> None:
        if len(items) % 2:
            raise MalformedError("its pickle has a key without a value")
        into = target.attributes() if isinstance(target, Stub) else target
        for at in range(0, len(items), 2):
            self._spend()
            into[safe_key(items[at])] = items[at + 1]

    # --- classes, calls and objects: all inert ---

    def global_(self, argument: Any) -> None:
        self._stack.append(Stub(str(argument).replace(" ", ".", 1)))

    def stack_global(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise MalformedError("its pickle names a class by something that is no text")
        if len(name) + len(module) > _NAME_LENGTH:
            raise MalformedError("its pickle names a class of an impossible length")
        self._stack.append(Stub(f"{module}.{name}"))

    def reduce(self, _: Any) -> None:
        args, target = self.pop(), self.pop()
        # Text that becomes bytes is a copy, and one memo entry can be copied a million times.
        if isinstance(args, tuple) and args and isinstance(args[0], str):
            self._spend(len(args[0]) // _BYTES_OF_AN_OPERATION)
        self._stack.append(inert_call(target, args))

    def newobj_ex(self, _: Any) -> None:
        _kwargs, args, target = self.pop(), self.pop(), self.pop()
        self._stack.append(inert_call(target, args))

    def inst(self, argument: Any) -> None:
        args = tuple(self._since_mark())
        self._stack.append(inert_call(Stub(str(argument).replace(" ", ".", 1)), args))

    def obj(self, _: Any) -> None:
        items = self._since_mark()
        if not items:
            raise MalformedError("its pickle makes an object of nothing")
        self._stack.append(inert_call(items[0], tuple(items[1:])))

    def build(self, _: Any) -> None:
        state = self.pop()
        target = self._top(object)
        # (state, slots) as pickle's protocol 2 writes objects with __slots__.
        pair = isinstance(state, tuple) and len(state) == 2
        for piece in state if pair else (state,):
            if isinstance(piece, dict) and isinstance(target, Stub):
                self._spend(len(piece))
                target.attributes().update(piece)

    def persid(self, argument: Any) -> None:
        if self._persistent is not None:
            self._persistent.append(argument)
        self._stack.append(Stub("persistent-id", (argument,)))

    def binpersid(self, _: Any) -> None:
        self.persid(self.pop())

    def extension(self, argument: Any) -> None:
        self._stack.append(Stub(f"extension-{argument}"))


_PUSH = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
_PUSH |= {"STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"}
_PUSH |= {"BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_CONSTANT: dict[str, Any] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_HANDLERS: dict[str, Any] = {
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.memoize,
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "MARK": _Machine.mark,
    "POP": _Machine.drop,
    "POP_MARK": _Machine.drop_to_mark,
    "DUP": _Machine.dup,
    "LIST": _Machine.list_,
    "TUPLE": _Machine.tuple_,
    "DICT": _Machine.dict_,
    "FROZENSET": _Machine.frozenset_,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "ADDITEMS": _Machine.appends,
    "SETITEM": _Machine.setitem,
    "SETITEMS": _Machine.setitems,
    "GLOBAL": _Machine.global_,
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.reduce,
    "NEWOBJ_EX": _Machine.newobj_ex,
    "INST": _Machine.inst,
    "OBJ": _Machine.obj,
    "BUILD": _Machine.build,
    "PERSID": _Machine.persid,
    "BINPERSID": _Machine.binpersid,
    "EXT1": _Machine.extension,
    "EXT2": _Machine.extension,
    "EXT4": _Machine.extension,
}
