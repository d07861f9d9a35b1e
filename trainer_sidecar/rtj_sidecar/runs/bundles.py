"""`bundles/<first>_<last>.json`: many manifests in one object, so that a long run is read at once.

A cache and nothing else: an entry counts only where a listing of this moment has that manifest with
the very ETag that it had when it was bundled, so a bundle that is late, lost or wrong is not
believed. Each entry holds the manifest's own text, whatever this version knows of it: a later one
reads its fields there too. Never changed once written; what retention removed is not asked for.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, ValidationError
from rtj_api.wire import Wire

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import OF_ONE_RECORD, Context
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import ManifestRecord
from rtj_sidecar.stores.base import StoreProblem

# Manifests in one bundle at most, and the fewest that are worth one, or worth looking for one.
SIZE, WORTH = 256, 64
# A manifest of so many files is read by itself: few runs have many such, and it is large.
MOST_FILES = 16


class Entry(Wire):
    etag: str
    manifest: dict[str, Any]  # as it was read


class Bundle(Wire):
    entries: list[Entry] = Field(default_factory=list)


class Known(Wire):
    """An entry as this version reads it."""

    etag: str
    manifest: ManifestRecord


class AllKnown(Wire):
    entries: list[Known] = Field(default_factory=list)


def read_bundles(context: Context) -> list[Known]:
    """All that bundles have, to be `believed`. Raises StoreProblem."""

    def read(key: str) -> list[Known]:
        try:
            found = context.store.get(context.full(key))
        except StoreProblem as problem:
            if problem.reason not in OF_ONE_RECORD:
                raise
            return []  # broken: the manifests themselves are read
        return entries_of(found.data) if found is not None else []

    there = [key for key in context.keys(keys.BUNDLES) if keys.is_bundle(key)]
    return [entry for entries in context.map(read, there) for entry in entries]


def believed(
    entries: Iterable[Known], listed: Mapping[SaveId, str | None]
) -> dict[SaveId, ManifestRecord]:
    """Of the `listed` manifests (with their ETags) those that bundles have as they are."""
    known: dict[SaveId, ManifestRecord] = {}
    for entry in entries:
        save = SaveId(entry.manifest.fence, entry.manifest.n)
        if listed.get(save) == entry.etag:
            known[save] = entry.manifest
    return known


def entries_of(bundle: bytes) -> list[Known]:
    """What can be read of a bundle: where one entry cannot, the others still are."""
    # All at once takes two thirds of the time of one by one.
    with contextlib.suppress(ValidationError):
        return AllKnown.model_validate_json(bundle).entries
    try:
        entries = Bundle.model_validate_json(bundle).entries
    except ValidationError:
        return []
    known: list[Known] = []
    for entry in entries:
        # One that this version cannot read: the manifest itself is read, and told of.
        with contextlib.suppress(ValidationError):
            manifest = ManifestRecord.model_validate(entry.manifest)
            known.append(Known(etag=entry.etag, manifest=manifest))
    return known


def write_bundles(
    context: Context,
    manifests: Mapping[SaveId, ManifestRecord],
    listed: Mapping[SaveId, str | None],
) -> int:
    """Bundle what is in none yet, oldest first, unless it is too little; how many were written."""
    small = {
        save: etag
        for save, etag in listed.items()
        if etag and save in manifests and len(manifests[save].files) <= MOST_FILES
    }
    if len(small) < WORTH:
        return 0
    have = believed(read_bundles(context), small)
    new = [save for save in sorted(small) if save not in have]
    written = 0
    for start in range(0, len(new) - WORTH + 1, SIZE):
        chunk = new[start : start + SIZE]
        found = context.map(lambda save: _as_it_is(context, save), chunk)
        entries = [entry for entry in found if entry is not None]
        if len(entries) < WORTH:
            continue
        written += context.create(keys.bundle_key(chunk[0], chunk[-1]), Bundle(entries=entries))
    return written


def _as_it_is(context: Context, save: SaveId) -> Entry | None:
    """The manifest's own JSON and ETag, both of one read."""
    found = context.store.get(context.full(keys.manifest_key(save)))
    try:
        return Entry(etag=found.etag, manifest=json.loads(found.data)) if found else None
    except ValueError:
        return None  # damaged since it was read: who reads it next tells of it
