"""Orbax: `N/` of a CheckpointManager, and single directories of a Checkpointer.

All is written below `N.orbax-checkpoint-tmp/` and renamed at the end, with the time of the commit
in `_CHECKPOINT_METADATA`. Orbax never cleans up what a killed save left: it is a torn save here.
`item_handlers` in that file names exactly the items that this very save wrote, each a directory
(`CompositeCheckpointHandler.metadata_from_temporary_paths`, orbax-checkpoint 0.12.8): a deletion
that has taken one of them whole is seen by it alone. Of a save without items it is a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rtj_sidecar.checkpoints.formats import jsonfile, ocdbt
from rtj_sidecar.checkpoints.formats.base import FileCheck, Window
from rtj_sidecar.checkpoints.formats.facts import EPOCH_KEYS, LOSS_KEYS, number, whole_number
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.layouts.guides import orbax as guides
from rtj_sidecar.checkpoints.layouts.names import numbers_in
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS, parts_named
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
    Reason,
)

MARKER = "_CHECKPOINT_METADATA"
TREE = "_METADATA"
COMMITTED = "commit_success.txt"
TEMPORARY = ".orbax-checkpoint-tmp"
_MANIFEST = "manifest.ocdbt"
_PROCESS = re.compile(r"^(.*/)?(ocdbt\.|array_metadatas/)process_(\d+)(?:/|$)")
_ARRAYS = "array_metadatas/"
_DATA = re.compile(r"(^|/)d/[0-9a-f]{32}$")
_MARKER_KEYS = ("commit_timestamp_nsecs", "metrics", "custom_metadata", "item_handlers")
_ITEMS = "items"
_MOST_ITEMS = 1000
_JSON = ("metadata", "metrics")
"""Items of JsonSave, and the manager's metrics, are files of these names."""


class OrbaxLayout:
    """`layout: orbax`."""

    name = "orbax"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        roots = _roots(listing.files)
        found: dict[str, list[FileEntry]] = {}
        for entry in listing.files:
            root = _root_above(entry.path, roots)
            # `*.__lock` files come and go.
            if root is not None and not entry.path.endswith(".__lock"):
                found.setdefault(root, []).append(entry)
        return tuple(_save(root, files, reader) for root, files in found.items())

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        files = {entry.path[len(save.root_key) + 1 :]: entry for entry in save.files}
        marker = _marker_gate(save, files, reader, expect)
        if marker.passed is False:
            why = "not looked at: an earlier gate failed"
            return marker, GateResult(Gate.CONTAINER, None, why), GateResult(Gate.SET, None, why)
        checks = [(entry, _check(reader, entry)) for entry in save.files]
        whole = (
            _whole_gate(save, files)
            if expect.whole
            else GateResult(Gate.SET, None, "one rank's share")
        )
        return marker, common.container_result(checks), whole

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        union = common.union_of(parts)
        if any(TEMPORARY in path for path in union) or not union:
            detail = "the save was not renamed to its final name: it did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        if not any(name_of(path) in (MARKER, TREE) for path in union):
            detail = f"no rank has {MARKER}: the save did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        named = {item for part in parts for item in _named_items(part.facts)}
        for marker in (path for path in union if name_of(path) == MARKER):
            root = marker[: -len(MARKER)]
            if gone := _gone_item(union, root=root, named=named) or _not_committed(union, root):
                return gone
        found = _set_gate(union)
        # A process that is missing with all that it wrote is not missed by its name.
        return replace(found, passed=None) if found.passed else found


def _roots(files: Iterable[FileEntry]) -> frozenset[str]:
    """Directories that are one save each: the outermost with a marker, a tree, or the name of one
    that was never finished."""
    roots = set()
    for entry in files:
        parts = entry.path.split("/")
        for depth, part in enumerate(parts[:-1]):
            if TEMPORARY in part:
                roots.add("/".join(parts[: depth + 1]))
                break
        if len(parts) > 1 and parts[-1] in (MARKER, TREE):
            roots.add("/".join(parts[:-1]))
            # `N/<item>/_METADATA` of a version without the marker: the number is the save.
            if len(parts) > 2 and parts[-1] == TREE and numbers_in(parts[-3]):
                roots.add("/".join(parts[:-2]))
    return frozenset(roots)


def _root_above(path: str, roots: frozenset[str]) -> str | None:
    parts = path.split("/")
    above = ("/".join(parts[: depth + 1]) for depth in range(len(parts) - 1))
    return next((root for root in above if root in roots), None)


def _save(root: str, found: list[FileEntry], reader: Reader) -> FoundSave:
    files = {entry.path[len(root) + 1 :]: entry for entry in found}
    numbers = numbers_in(name_of(root).partition(TEMPORARY)[0])
    facts: dict[str, object] = {}
    values: dict[str, object] = {}
    keys: list[str] = []
    for path, entry in files.items():
        if path == MARKER:
            told = _json(reader, entry, _MARKER_KEYS)
            metrics, handlers = told.get("metrics"), told.get("item_handlers")
            values |= metrics if isinstance(metrics, dict) else {}
            if isinstance(handlers, dict):
                facts[_ITEMS] = sorted(str(item)[:200] for item in handlers)[:_MOST_ITEMS]
        elif name_of(path) == TREE:
            keys += _tree_keys(reader, entry)
        elif name_of(path) in _JSON:
            values |= _json(reader, entry, (*EPOCH_KEYS, *LOSS_KEYS))
    optimizer = any("optim" in key.lower() or "opt_state" in key.lower() for key in keys)
    items = sorted({path.split("/")[0] for path in files if "/" in path})
    if keys:
        facts[HAS] = _held(keys, items, optimizer=optimizer)
        facts["keys"] = sorted({key.split("'")[1] if "'" in key else key for key in keys})[:64]
    step = numbers.weak if numbers.step is None else numbers.step
    facts |= {"unit": "step"} if step is not None else {}
    epochs = [e for key in EPOCH_KEYS if (e := whole_number(values.get(key))) is not None]
    losses = [v for key in LOSS_KEYS if (v := number(values.get(key))) is not None]
    return FoundSave(
        root_key=root,
        layout=OrbaxLayout.name,
        files=tuple(found),
        step=step,
        epoch=epochs[0] if epochs else numbers.epoch,
        loss=losses[0] if losses else None,
        full_state=optimizer if keys else None,
        reused_path=not (numbers.sure or name_of(root).isdecimal()),
        facts=facts,
    )


def _held(keys: Sequence[str], items: Sequence[str], *, optimizer: bool) -> dict[str, bool]:
    """The schedule of optax lies in the optimizer's state; the data's position in an item."""
    has = parts_named([*keys, *items], optimizer=optimizer)
    loader = has["loader"] or any(
        i.startswith(("data", "iter", "grain", "train_iter")) for i in items
    )
    return {"optimizer": optimizer, "rng": has["rng"], "loader": loader}


def _json(reader: Reader, entry: FileEntry, keep: Sequence[str]) -> Mapping[str, object]:
    try:
        check = common.json_of(reader, entry, keep=keep)
    except (OSError, UnsafePathError):
        return {}
    return check.facts


def _tree_keys(reader: Reader, entry: FileEntry) -> list[str]:
    """Names of the leaves, as Orbax writes them: `('opt_state', 'mu')`."""

    def look(window: Window, _: bytearray) -> FileCheck:
        value = jsonfile.load(window, caps=reader.caps)
        tree = value.get("tree_metadata") if isinstance(value, dict) else None
        keys = [str(key)[:500] for key in tree] if isinstance(tree, dict) else []
        return FileCheck("orbax-tree", None, "", facts={"keys": keys[:100_000]})

    try:
        keys = reader.ask(entry, "orbax-tree", look).facts.get("keys")
    except (OSError, UnsafePathError):
        return []
    return keys if isinstance(keys, list) else []


def _marker_gate(
    save: FoundSave, files: Mapping[str, FileEntry], reader: Reader, expect: Expectations
) -> GateResult:
    for path in (save.root_key, *files):
        if TEMPORARY in path:
            detail = f"{save.root_key} was not renamed to its final name: the save did not finish"
            return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
    entry = files.get(MARKER)
    if entry is None:
        if not expect.whole:
            return GateResult(Gate.MARKER, None, f"{MARKER} is not here; another rank may hold it")
        if any(_PROCESS.match(path) and _ARRAYS in path for path in files):
            # Releases that describe arrays write the marker, too; only older ones have none.
            detail = f"{save.root_key}/{MARKER} is missing: the save is not whole, or half deleted"
            return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
        return GateResult(Gate.MARKER, True, "renamed to its final name, as older releases commit")
    check = common.json_of(reader, entry, keep=_MARKER_KEYS)
    if check.passed is None:
        return GateResult(Gate.MARKER, None, check.detail)
    if not check.passed:
        return common.failed(Gate.MARKER, Reason.MARKER_INVALID, check.detail)
    if not check.facts.get("commit_timestamp_nsecs"):
        detail = f"{entry.path} states no time of a commit: the save did not finish"
        return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)
    root = f"{save.root_key}/"
    if expect.whole and (gone := _not_committed([f"{root}{path}" for path in files], root)):
        return gone
    return GateResult(Gate.MARKER, True, f"{MARKER} states when it was committed")


def _check(reader: Reader, entry: FileEntry) -> FileCheck:
    name = name_of(entry.path)
    manifest = name == _MANIFEST
    if manifest or _DATA.search(entry.path):

        def look(window: Window, _: bytearray) -> FileCheck:
            return ocdbt.check(window, manifest=manifest, caps=reader.caps)

        return reader.ask(entry, ("ocdbt", manifest), look)
    if name in (MARKER, TREE, "_sharding", *_JSON):
        return reader.ask(entry, "json", lambda w, _: jsonfile.check(w, caps=reader.caps))
    return common.check_of(reader, entry)


def _named_items(facts: Mapping[str, object]) -> list[str]:
    told = facts.get(_ITEMS)
    return [item for item in told if isinstance(item, str)] if isinstance(told, list) else []


def _gone_item(paths: Iterable[str], *, root: str, named: Iterable[str]) -> GateResult | None:
    """`root` ends with a slash, or is empty. None where no item is gone, or where the tree lies at
    the root itself, so that there are no items."""
    below = [path[len(root) :] for path in paths if path.startswith(root)]
    there = {path.partition("/")[0] for path in below if "/" in path}
    gone = sorted(set(named) - there)
    if not gone or TREE in below:
        return None
    detail = f"{root}{gone[0]}/ is missing or empty, {MARKER} names it as an item of this save"
    return common.failed(Gate.SET, Reason.FILES_MISSING, detail)


def _not_committed(paths: Iterable[str], root: str) -> GateResult | None:
    """Releases from 0.12 on leave COMMITTED in each item and, last of all, in the save; where they
    commit by that file instead of by a rename they overlook a save without it. None where nothing
    is missing, or where no such file is, as with older releases."""
    below = {path[len(root) :] for path in paths if path.startswith(root)}
    places = {path[: -len(COMMITTED)] for path in below if name_of(path) == COMMITTED}
    if not places:
        return None
    wanted = {"", *(path[: -len(TREE)] for path in below if name_of(path) == TREE)}
    if not (missing := sorted(wanted - places)):
        return None
    detail = f"{root}{missing[0]}{COMMITTED} is missing: the save did not finish"
    return common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail)


def _whole_gate(save: FoundSave, files: Mapping[str, FileEntry]) -> GateResult:
    """`_set_gate`, and whatever a deletion of the directory may have taken first: each item that
    the marker names, the tree beside arrays that are described, the data beside a manifest."""
    root = f"{save.root_key}/"
    paths = [f"{root}{path}" for path in files]
    if gone := _gone_item(paths, root=root, named=_named_items(save.facts)):
        return gone
    data = {path[: -len("d/") - 32] for path in files if _DATA.search(path)}
    for path in sorted(files):
        named = _PROCESS.match(path)
        stem = (named.group(1) or "") if named else ""
        if named and named.group(2) == _ARRAYS and f"{stem}{TREE}" not in files:
            detail = f"{stem}{TREE} is missing, its arrays are described"
            return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
        if name_of(path) == _MANIFEST and path[: -len(_MANIFEST)] not in data:
            detail = f"{path} has no data beside it"
            return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    return _set_gate(files)


def _set_gate(files: Iterable[str]) -> GateResult:
    """In each item, the data of every process that described arrays, and a manifest beside it.

    A host that owns no fragment of an array writes nothing: gaps in the numbers prove nothing.
    """
    paths = set(files)
    wrote: dict[str, set[int]] = {}
    described: dict[str, set[int]] = {}
    for path in paths:
        if named := _PROCESS.match(path):
            kind = wrote if named.group(2) == "ocdbt." else described
            kind.setdefault(named.group(1) or "", set()).add(int(named.group(3)))
    for stem, found in sorted(described.items()):
        if stem in wrote and (lost := sorted(found - wrote[stem])):
            detail = f"{stem}ocdbt.process_{lost[0]} is missing, its array metadata is there"
            return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    for path in sorted(paths):
        if _DATA.search(path):
            manifest = f"{path[: -len('d/') - 32]}{_MANIFEST}"
            if manifest not in paths:
                detail = f"{manifest} is missing beside its data"
                return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    if not wrote and not described:
        return GateResult(Gate.SET, None, "nothing says which files belong to it")
    return GateResult(Gate.SET, True, "the files of every process, each with its manifest")
