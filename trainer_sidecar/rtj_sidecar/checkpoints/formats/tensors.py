"""Where the tensors of a file lie: name, kind of float, offset and length, read inertly.

Of a torch zip by the stub pickle (`torch._utils._rebuild_tensor_v2` over a storage that is one
stored member), of safetensors by its header. Names are the keys on the way to the tensor, joined
by dots. Only contiguous floats of the forms in `numbers` are listed, the rest is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rtj_sidecar.checkpoints.formats import safetensors, stub, zips
from rtj_sidecar.checkpoints.formats.base import Caps, MalformedError, Window
from rtj_sidecar.checkpoints.formats.inert import Stub
from rtj_sidecar.checkpoints.formats.numbers import FORMS

_STORAGES = {
    "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16",
    "torch.FloatStorage": "F32",
    "torch.DoubleStorage": "F64",
}
_DTYPES = {
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.float32": "F32",
    "torch.float64": "F64",
}
_REBUILD = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
_REBUILD_V3 = "torch._utils._rebuild_tensor_v3"
_PARAMETERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_MOST, _DEPTH, _NAME = 500_000, 64, 400


@dataclass(frozen=True, slots=True)
class Tensor:
    """`dtype` is a key of numbers.FORMS; `offset` counts from the beginning of the window."""

    name: str
    dtype: str
    offset: int
    length: int

    @property
    def values(self) -> int:
        return self.length // FORMS[self.dtype].size


@dataclass(frozen=True, slots=True)
class Listing:
    """`skipped`: float tensors of other forms, or that are no contiguous part of a file.
    `names`: of all tensors, whatever their kind, and of the containers they are in."""

    tensors: tuple[Tensor, ...]
    skipped: int
    names: frozenset[str]


def of_safetensors(window: Window, *, caps: Caps) -> Listing:
    """Raises MalformedError."""
    header, length = safetensors.read_header(window, caps=caps)
    header.pop("__metadata__", None)
    found, skipped = [], 0
    for name, entry in header.items():
        begin, stop, shown = safetensors.span(name, entry)
        if entry.get("dtype") in FORMS:
            found.append(Tensor(shown, entry["dtype"], 8 + length + begin, stop - begin))
        elif str(entry.get("dtype", "")).startswith("F"):
            skipped += 1
    return Listing(tuple(found), skipped, frozenset(header))


def of_torch(window: Window, *, caps: Caps, prefix: str = "") -> Listing:
    """Of a torch zip, or of one slice of a DCP shard. Raises MalformedError."""
    archive = zips.read_archive(window, caps=caps)
    members = {member.name: member for member in archive.members}
    top = next((name[: -len("data.pkl")] for name in members if name.endswith("/data.pkl")), None)
    if top is None:
        raise MalformedError("it is a zip file, but none of torch.save: it has no data.pkl")
    order = members.get(f"{top}byteorder")
    if order is not None:
        said = zips.read_member(window, archive, order, limit=64)
        if said.strip() == b"big":
            return Listing((), len(members), frozenset())
    content = zips.read_member(window, archive, members[f"{top}data.pkl"], limit=caps.pickle_bytes)
    found: dict[tuple[str, int, int], Tensor] = {}
    names: set[str] = set()
    skipped = 0
    for name, value in _walk(stub.load(content, caps=caps), prefix):
        names.add(name)
        described = _described(value)
        if described is None:
            continue
        dtype, key, first, count = described
        member = members.get(f"{top}data/{key}")
        if dtype is None or member is None or count is None or member.method:
            skipped += 1 if dtype is None or count is None else 0
            continue
        size = FORMS[dtype].size
        if not count or (first + count) * size > member.size:
            continue
        at = zips.data_offset(window, archive, member) + first * size
        found.setdefault((dtype, at, count), Tensor(name, dtype, at, count * size))
    return Listing(tuple(sorted(found.values(), key=lambda t: t.offset)), skipped, frozenset(names))


def _walk(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every value below, with its dotted name: keys of mappings, numbers of list items."""
    stack: list[tuple[str, Any, int]] = [(prefix, value, 0)]
    seen: set[int] = set()
    left = _MOST
    while stack and left:
        name, item, depth = stack.pop()
        left -= 1
        if name:
            yield name, item
        if isinstance(item, Stub) and item.name in _PARAMETERS and item.args:
            item = item.args[0]
            yield name, item
        inner = item.state if isinstance(item, Stub) and _described(item) is None else item
        if depth >= _DEPTH or id(inner) in seen:
            continue
        pairs: list[tuple[Any, Any]] = []
        if isinstance(inner, dict):
            pairs = list(inner.items())
        elif isinstance(inner, list | tuple):
            pairs = list(enumerate(inner))
        if pairs:
            seen.add(id(inner))
        for key, below in reversed(pairs):
            if isinstance(below, dict | list | tuple | Stub) or isinstance(inner, dict):
                shown = str(key) if isinstance(key, str | int) else "?"
                stack.append((f"{name}.{shown}"[:_NAME] if name else shown, below, depth + 1))


def _described(value: Any) -> tuple[str | None, str, int, int | None] | None:
    """(kind of float or None, storage, first value, count or None); None: no float tensor.

    A count of None: its values are not the whole of a range, so what lies between them is not its
    own.
    """
    if not isinstance(value, Stub) or len(value.args) < 4:
        return None
    if value.name not in _REBUILD and value.name != _REBUILD_V3:
        return None
    storage, first, size, stride = value.args[:4]
    told = storage.args[0] if isinstance(storage, Stub) and storage.args else None
    if not isinstance(told, tuple) or len(told) < 3 or not isinstance(told[1], Stub):
        return None
    kind = told[1].name
    dtype = _STORAGES.get(kind)
    if value.name == _REBUILD_V3:
        named = value.args[6] if len(value.args) > 6 else None
        kind = named.name if isinstance(named, Stub) else ""
        dtype = _DTYPES.get(kind)
    if dtype is None and "float" not in kind.lower():
        return None
    if not isinstance(first, int) or first < 0 or not _sizes(size) or not _sizes(stride):
        return dtype, str(told[2]), 0, None
    count, span = 1, 1
    for length, step in zip(size, stride, strict=False):
        count *= length
        span += (length - 1) * step
    dense = count == 0 or (len(size) == len(stride) and span <= count)
    return dtype, str(told[2]), first, min(count, span) if dense else None


def _sizes(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 48
        for item in value
    )
