"""`bundles/marks/<id>.json`: many marks in one object. Marks outlive what they are said of, so a
run that drops or retires many saves has more of them than of all other records.

A cache and nothing else, as the bundles of manifests: an entry counts only where a listing of this
moment has that mark with the very ETag that it had when it was bundled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, ValidationError
from rtj_api.wire import Wire

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.bundles import SIZE, WORTH
from rtj_sidecar.runs.context import OF_ONE_RECORD, Context
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import MarkRecord
from rtj_sidecar.stores.base import StoreProblem

MarkId = tuple[SaveId, int]


class MarkEntry(Wire):
    key: str  # of the mark, relative to the run
    etag: str
    mark: dict[str, Any]  # as it was read, whatever this version knows of it


class MarkBundle(Wire):
    entries: list[MarkEntry] = Field(default_factory=list)


def listed_marks(context: Context) -> dict[MarkId, str | None]:
    """Every mark that is there, with its ETag where the store lists it. Raises StoreProblem."""
    skip = len(context.full(""))
    return {
        found: each.etag
        for each in context.store.list(context.full(keys.MARKS))
        if (found := keys.parse_mark(each.key[skip:])) is not None
    }


def bundled_marks(
    context: Context, listed: Mapping[MarkId, str | None]
) -> dict[MarkId, MarkRecord]:
    """Of the `listed` marks those that bundles have as they are. Raises StoreProblem."""
    known: dict[MarkId, MarkRecord] = {}
    for entry in _read(context):
        at = keys.parse_mark(entry.key)
        if at is None or listed.get(at) != entry.etag:
            continue
        # One that this version cannot read is read by itself, and told of.
        with contextlib.suppress(ValidationError):
            known[at] = MarkRecord.model_validate(entry.mark)
    return known


def write_mark_bundles(context: Context) -> int:
    """Bundle the marks that are in none yet, unless they are too few; how many were written."""
    listed = {at: etag for at, etag in listed_marks(context).items() if etag}
    if len(listed) < WORTH:
        return 0
    have = bundled_marks(context, listed)
    new = [at for at in sorted(listed) if at not in have]
    written = 0
    for start in range(0, len(new) - WORTH + 1, SIZE):
        found = context.map(lambda at: _as_it_is(context, at), new[start : start + SIZE])
        entries = [entry for entry in found if entry is not None]
        if len(entries) >= WORTH:
            key = keys.mark_bundle_key(_digest(entry.key for entry in entries))
            written += context.create(key, MarkBundle(entries=entries))
    return written


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def _read(context: Context) -> list[MarkEntry]:
    def read(key: str) -> list[MarkEntry]:
        try:
            found = context.store.get(context.full(key))
        except StoreProblem as problem:
            if problem.reason not in OF_ONE_RECORD:
                raise
            return []
        with contextlib.suppress(ValidationError):
            return MarkBundle.model_validate_json(found.data).entries if found else []
        return []  # broken: the marks themselves are read

    there = [key for key in context.keys(keys.MARK_BUNDLES) if keys.is_mark_bundle(key)]
    return [entry for entries in context.map(read, there) for entry in entries]


def _as_it_is(context: Context, at: MarkId) -> MarkEntry | None:
    """The mark's own JSON and ETag, both of one read."""
    key = keys.mark_key(*at)
    found = context.store.get(context.full(key))
    try:
        told = json.loads(found.data) if found is not None else None
        return MarkEntry(key=key, etag=found.etag, mark=told) if found is not None else None
    except ValueError:
        return None  # damaged since: who reads it next tells of it
