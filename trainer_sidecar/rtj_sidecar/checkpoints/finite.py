"""Finite numbers: whether a NaN is new in a parameter or an optimizer tensor. `level: full` only.

A NaN condemns a save only where the same tensors were finite in the save before it. What was NaN
from the first step, infinities, buffers, schedulers and scores condemn nobody: they are healthy in
real trainers. Read once for each state of a file, in pieces, at about the speed of a hash. Must
never judge a file that it could not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rtj_sidecar.checkpoints.formats import numbers, tensors
from rtj_sidecar.checkpoints.formats.base import CapError, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.dcp import Slice
from rtj_sidecar.checkpoints.formats.sniff import TORCH_SUFFIXES
from rtj_sidecar.checkpoints.formats.torchzip import ZIP_MAGIC
from rtj_sidecar.checkpoints.layouts.dcp_rules import MARKER, metadata_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.layouts.names import Numbers, numbers_in, without_numbers
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.roles import Role, role_of
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave

FACT = "numbers"
MOST_READ = 2  # times its own size of a file
NAMED = 32
"""Names told of each list; the counts beside them are exact."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One tensor that was read."""

    role: Role
    name: str
    dtype: str
    values: int
    found: numbers.Numbers


def numbers_of(save: FoundSave, reader: Reader) -> dict[str, object]:
    """The fact `numbers` of a save, as plain JSON values:

    `tensors` and `bytes` read; `skipped`: float tensors of other forms; for each role that was
    read `model`/`optimizer`: {`same`: changes when names, kinds or sizes do, `nan`: names,
    `nan_count`}; `inf_count`; `denormals`: their share of the values that were sampled.
    Raises OSError, UnsafePathError where a file is gone or changing.
    """
    seen: list[Seen] = []
    skipped = 0
    slices = _slices(save.files, reader)
    for entry in save.files:
        if name_of(entry.path) == MARKER:
            continue
        inside = _inside(save, entry)
        found, left = _file(reader, entry, inside=inside, slices=slices.get(entry.path))
        seen += found
        skipped += left
    return _summary(seen, skipped)


def new_nans(now: Mapping[str, object], before: Mapping[str, object] | None) -> list[str]:
    """Tensors that hold NaN now and were finite in the save before. Pure.

    Empty where nothing can be compared: no save before, or other tensors than then.
    """
    if before is None:
        return []
    found: list[str] = []
    for role in Role:
        mine, theirs = now.get(role.value), before.get(role.value)
        if not isinstance(mine, Mapping) or not isinstance(theirs, Mapping):
            continue
        if mine.get("same") != theirs.get("same"):
            continue
        known = theirs.get("nan") or ()
        if theirs.get("nan_count", 0) != len(known):
            continue  # more than were told by name: which ones were finite is not known
        found += [name for name in mine.get("nan") or () if name not in known]
    return found


def _summary(seen: list[Seen], skipped: int) -> dict[str, object]:
    told: dict[str, object] = {
        "tensors": len(seen),
        "bytes": sum(one.values * numbers.FORMS[one.dtype].size for one in seen),
        "skipped": skipped,
        "inf_count": sum(one.found.inf for one in seen),
    }
    sampled = sum(one.found.sampled for one in seen)
    if sampled:
        told["denormals"] = round(sum(one.found.denormal for one in seen) / sampled, 6)
    for role in Role:
        mine = sorted((one for one in seen if one.role is role), key=lambda one: one.name)
        if mine:
            lines = "".join(f"{one.name}\0{one.dtype}\0{one.values}\n" for one in mine)
            nan = [one.name for one in mine if one.found.nan]
            told[role.value] = {
                "same": hashlib.sha256(lines.encode()).hexdigest()[:16],
                "nan": nan[:NAMED],
                "nan_count": len(nan),
            }
    return told


def _inside(save: FoundSave, entry: FileEntry) -> str:
    """The file's path within its save, equal in the next save: without the step it bears."""
    root = save.root_key
    if entry.path == root:
        return ""
    if root == "." or entry.path.startswith(f"{root}/"):
        # `checkpoint-500/global_step500/...` says it twice; `model-00001-of-00003` is a shard.
        own = Numbers(step=save.step, epoch=save.epoch)
        parts = (entry.path if root == "." else entry.path[len(root) + 1 :]).split("/")
        return "/".join(without_numbers(part, own) for part in parts)
    place, slash, name = entry.path.rpartition("/")
    return place + slash + without_numbers(name, numbers_in(name))


def _slices(files: Iterable[FileEntry], reader: Reader) -> dict[str, tuple[Slice, ...]]:
    by_file: dict[str, list[Slice]] = {}
    for entry in files:
        if name_of(entry.path) != MARKER:
            continue
        metadata = metadata_of(reader, entry)
        prefix = "" if parent_of(entry.path) == "." else parent_of(entry.path) + "/"
        for part in () if isinstance(metadata, FileCheck) else metadata.slices:
            by_file.setdefault(prefix + part.path, []).append(part)
    return {path: tuple(parts) for path, parts in by_file.items()}


def _file(
    reader: Reader, entry: FileEntry, *, inside: str, slices: tuple[Slice, ...] | None
) -> tuple[list[Seen], int]:
    seen: list[Seen] = []
    skipped = [0]

    def look(window: Window, buffer: bytearray) -> FileCheck:
        left = MOST_READ * window.size
        for part, listing in _listings(window, entry, reader=reader, slices=slices):
            skipped[0] += listing.skipped
            for tensor in listing.tensors:
                role = role_of(inside, tensor.name)
                if role is None:
                    continue
                left -= tensor.length
                if left < 0:
                    skipped[0] += 1  # thousands of views of one storage are read no more than twice
                    continue
                form = numbers.FORMS[tensor.dtype]
                found = numbers.look(part, tensor.offset, tensor.length, form, buffer)
                alone = slices is not None or not inside
                name = tensor.name if alone else f"{inside}:{tensor.name}"
                seen.append(Seen(role, name, tensor.dtype, tensor.values, found))
        return FileCheck("numbers", None, "read")

    question = ("numbers", hash(slices))
    known = reader.cache.get(entry.stamp, (question, "seen"))
    if isinstance(known, tuple):
        return list(known[0]), known[1]
    check = reader.ask(entry, question, look)
    if check.format != "numbers":
        seen, skipped = [], [1]  # a form that we cannot follow: not judged, see the other gates
    reader.cache.put(entry.stamp, (question, "seen"), (tuple(seen), skipped[0]))
    return seen, skipped[0]


def _listings(
    window: Window, entry: FileEntry, *, reader: Reader, slices: tuple[Slice, ...] | None
) -> Iterable[tuple[Window, tensors.Listing]]:
    name = name_of(entry.path)
    if name.endswith(".safetensors"):
        yield window, tensors.of_safetensors(window, caps=reader.caps)
    elif slices is not None:
        for part in slices:
            inner = window.part(part.offset, part.length)
            try:
                yield inner, tensors.of_torch(inner, caps=reader.caps, prefix=part.key)
            except CapError:
                raise
            except MalformedError:
                continue  # another serializer's slice
    elif name.endswith(TORCH_SUFFIXES) and window.size > 4 and window.read(0, 4) == ZIP_MAGIC:
        yield window, tensors.of_torch(window, caps=reader.caps)
