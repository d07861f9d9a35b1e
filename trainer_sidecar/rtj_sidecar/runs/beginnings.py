"""A beginning that a person named: a save on whatever branch, one of another run, or foreign.

A save of this run is taken as it is. One of another run, or of a place that this project did not
write (`imports`), is copied into this one before anything is chosen, every byte proved on the way:
so all that follows (restore, lineage, retention, a store that loses the other run) knows only saves
of this run. Must never change another run but for the mark that keeps its data while it is read,
and never begin where it cannot say what it found.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from rtj_api.reasons import Reason
from rtj_api.rules.steering import Named, Whose, read_named
from rtj_api.wire import Candidate, Found, Wanted

from rtj_sidecar.checkpoints.layouts import AUTO
from rtj_sidecar.runs import keys, lineage
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.history import History, read_history
from rtj_sidecar.runs.imports.finding import foreign, is_file, no_room, place_at
from rtj_sidecar.runs.imports.importing import publish
from rtj_sidecar.runs.imports.places import Place
from rtj_sidecar.runs.imports.surveying import How, Unusable
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.marks import mark
from rtj_sidecar.runs.records import FileRecord, Imported, ManifestRecord, MarkKind, RunRecord
from rtj_sidecar.runs.ships import reserve
from rtj_sidecar.runs.verify import Finding, corrupt, missing
from rtj_sidecar.stores.base import (
    ContentMismatch,
    ObjectMissing,
    Progress,
    SourceChanged,
    Store,
)

OpenPlace = Callable[[str], Store]
_NAMES_TOLD = 5


def acted(history: History) -> list[str]:
    """By whose word attempts of this run have begun so far, oldest first."""
    asked = [f.parent.asked for f in history.fences if f.parent is not None and f.parent.asked]
    return list(dict.fromkeys(asked))


def find(
    context: Context,
    history: History,
    *,
    wanted: Wanted,
    fence: int,
    open_place: OpenPlace,
    incoming: Path,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
    layout: str = AUTO,
    include: tuple[str, ...] = (),
) -> Found:
    """The save that `wanted.value` names, in this run by now. `incoming`: an empty place on the
    pod's disk for one save. Raises StoreProblem where a store cannot be asked, Cancelled."""
    try:
        named = read_named(wanted.value or "")
        if named.whose is Whose.THIS:
            return Found(asked=wanted.asked, save=_own(context, history, named.save or ""))
        source = _source(context, named, open_place)
        if not isinstance(source, Context):
            how = How(
                incoming=incoming, layout=layout, include=include, progress=progress, cancel=cancel
            )
            return foreign(context, history, source, asked=wanted.asked, fence=fence, how=how)
        there = read_history(source)
        names = [named.save] if named.save else _newest_first(source, there)
        why = ""
        for name in names:
            try:
                theirs = _committed(source, there, name)
                copied = _copy(
                    context,
                    history,
                    source,
                    theirs,
                    fence=fence,
                    incoming=incoming,
                    progress=progress,
                    cancel=cancel,
                )
                return Found(asked=wanted.asked, save=copied)
            except Unusable as unusable:
                why = why or str(unusable)
        raise Unusable(why)
    except Unusable as error:
        told = [str(each) for each in error.passed]
        return Found(asked=wanted.asked, problem=str(error), passed_over=told)
    except ValueError as error:
        return Found(asked=wanted.asked, problem=str(error))


def _own(context: Context, history: History, name: str) -> Candidate:
    manifest = _committed(context, history, name)
    return lineage.candidate(history, SaveId(manifest.fence, manifest.n))


def _committed(context: Context, history: History, name: str) -> ManifestRecord:
    save = keys.parse_name(name)
    manifest = history.manifests.get(save) if save is not None else None
    place = f"run {context.run_id} in {context.store.url}"
    if save is None or manifest is None:
        chain = lineage.lineage(history)
        known = [m.name for s in (*chain.saves, *chain.branches) if (m := history.manifests.get(s))]
        some = ", ".join(known[:_NAMES_TOLD]) + (", …" if len(known) > _NAMES_TOLD else "")
        raise Unusable(f"{place} holds no committed save {name}; it has: {some or 'none'}")
    if keys.step_in(name) is not None and manifest.name != name:
        raise Unusable(f"{place} holds no save {name}; {save} is called {manifest.name}")
    if history.deleted(save):
        raise Unusable(f"{name} was given up by retention and its data goes: choose another save")
    condemned = history.condemned(save)
    if condemned is not None:
        raise Unusable(f"{name} was found {condemned.kind}: {condemned.message}")
    return manifest


def _newest_first(source: Context, there: History) -> list[str]:
    names = [
        manifest.name
        for save in lineage.lineage(there).saves
        if (manifest := there.manifests.get(save)) is not None
        and manifest.full_state is not False
        and there.condemned(save) is None
    ]
    if not names:
        raise Unusable(f"run {source.run_id} in {source.store.url} holds no valid save")
    return names


def _source(context: Context, named: Named, open_place: OpenPlace) -> Context | Place:
    """Another run, or a place that is none of this project's."""
    run = named.run or ""
    if named.whose is Whose.OTHER:
        source = replace(context, run_id=run)
        if source.read(keys.RUN, RunRecord) is None:
            raise Unusable(
                f"{source.store.url}/{source.run_id} is no run of this project (no {keys.RUN} in "
                "it). Write a directory with its leading slash, and a bucket path as its URL"
            )
        return source
    url = Path(run).as_uri() if named.whose is Whose.PATH else run
    parent, _, last = url.rpartition("/")
    store = open_place(parent)
    source = replace(context, store=store, run_id=unquote(last) if is_file(url) else last)
    if source.read(keys.RUN, RunRecord) is not None:
        return source
    return place_at(f"{url}/{named.save}" if named.save else url, open_place=open_place)


def _copy(
    context: Context,
    history: History,
    source: Context,
    theirs: ManifestRecord,
    *,
    fence: int,
    incoming: Path,
    progress: Progress | None,
    cancel: threading.Event | None,
) -> Candidate:
    origin = Imported(url=source.store.url, run=source.run_id, name=theirs.name)
    for save, manifest in history.manifests.items():
        if manifest.imported == origin and history.condemned(save) is None:
            return lineage.candidate(history, save)  # copied for an attempt that never began
    mark(
        source,
        SaveId(theirs.fence, theirs.n),
        kind=MarkKind.PINNED,
        reason=Reason.RESUMED,
        message=f"run {context.run_id} of job {context.owner} goes on from it",
    )
    ship = reserve(
        context,
        history,
        fence=fence,
        root_key=f"{source.store.url}/{source.run_id}/{theirs.name}",
        layout=theirs.layout,
        step=theirs.step,
    )
    at, name = SaveId(ship.fence, ship.n), ship.name
    done: dict[str, FileRecord] = {}
    try:
        incoming.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise no_room(incoming, error) from error
    try:
        for file in theirs.files:
            if file.key not in done:
                moved = _copy_file(
                    context, source, theirs, file, name, incoming, progress=progress, cancel=cancel
                )
                done[file.key] = moved
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    files = [
        file.model_copy(update={"key": done[file.key].key, "etag": done[file.key].etag})
        for file in theirs.files
    ]
    manifest = theirs.model_copy(
        update={
            "run_id": context.run_id,
            "name": name,
            "fence": at.fence,
            "n": at.n,
            "job_uid": context.job_uid,
            "cluster_uid": context.cluster_uid,
            "parent": None,
            "committed_by_fence": fence,
            "committed_at": context.now(),
            "files": files,
            # Those are named by the other run's numbers, which mean other saves in this one.
            "facts": {k: v for k, v in theirs.facts.items() if k != "carried"},
            "imported": origin,
        }
    )
    publish(context, manifest, fence=fence, what=theirs.name)
    return lineage.candidate(replace(history, manifests={**history.manifests, at: manifest}), at)


def _copy_file(
    context: Context,
    source: Context,
    theirs: ManifestRecord,
    file: FileRecord,
    name: str,
    incoming: Path,
    *,
    progress: Progress | None,
    cancel: threading.Event | None,
) -> FileRecord:
    path = incoming / "file"
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise no_room(path, error) from error
    key = f"{keys.data_key(name, '')}{file.key.removeprefix(keys.data_key(theirs.name, ''))}"
    bad: Finding
    try:
        source.store.download(
            source.full(file.key),
            path,
            size=file.size,
            sha256=file.sha256,
            crc64nvme=file.crc64nvme or None,
            progress=progress,
            cancel=cancel,
        )
        sent = context.store.upload_file(context.full(key), path, cancel=cancel)
        if sent.sha256 == file.sha256:
            return file.model_copy(update={"key": key, "etag": sent.etag})
        bad = corrupt(file, expected=file.sha256, got=sent.sha256)
    except ObjectMissing:
        bad = missing(file)
    except ContentMismatch as error:
        bad = corrupt(file, expected=error.expected, got=error.got)
    except (OSError, SourceChanged) as error:
        raise no_room(path, error) from error
    raise Unusable(f"{theirs.name} of run {source.run_id} is damaged: {bad.message}")
