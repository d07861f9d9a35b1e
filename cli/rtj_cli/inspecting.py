"""`rtj inspect`: of each checkpoint whether it is valid, and why. Reads only.

A directory or file is judged by the same gates as in a pod; a store by its records and, byte for
byte if asked, by its objects. Must never write, mark or claim anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rtj_api.wire import Candidate
from rtj_sidecar.checkpoints.inspect import inspect_path
from rtj_sidecar.checkpoints.types import Status
from rtj_sidecar.opening import union_gate
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.lineage import candidate, lineage
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.base import Store
from rtj_sidecar.stores.open import keeps_run, kept_in, open_store


@dataclass(frozen=True, slots=True)
class Row:
    """One checkpoint. `valid` None: it cannot be told (yet). `size` in bytes."""

    run: str | None
    name: str
    step: int | None
    epoch: int | None
    loss: float | None
    size: int
    layout: str
    valid: bool | None
    status: str
    why: str
    full_state: bool | None = None
    current: bool = False  # what an attempt would resume from
    branch: bool = False  # no attempt reaches it by itself: only by its name, in resumeFrom

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def is_url(target: str) -> bool:
    return urlsplit(target).scheme not in ("",)


def of_path(path: Path, *, layout: str, include: Sequence[str], settle: float) -> list[Row]:
    """Every save at or below a path of this disk, newest last. Raises FileNotFoundError,
    UnknownLayoutError."""
    rows = []
    for save, verdict in inspect_path(path, layout=layout, include=include, settle_seconds=settle):
        valid: bool | None = verdict.candidate
        if verdict.status in (Status.WRITING, Status.UNKNOWN):
            valid = None
        rows.append(
            Row(
                run=None,
                name=save.root_key,
                step=save.step,
                epoch=save.epoch,
                loss=save.loss,
                size=save.size,
                layout=save.layout,
                valid=valid,
                status=verdict.status.value,
                why=verdict.message,
                full_state=save.full_state,
            )
        )
    newest = max((i for i, row in enumerate(rows) if row.valid), default=None)
    return [
        row if i != newest else Row(**{**asdict(row), "current": True})
        for i, row in enumerate(rows)
    ]


def runs_in(store: Store) -> list[str]:
    """The IDs of the runs in a store: every prefix that holds a run.json."""
    suffix = f"/{keys.RUN}"
    found = (listed.key for listed in store.list(""))
    return sorted(key.removesuffix(suffix) for key in found if key.endswith(suffix))


def of_store(
    url: str,
    *,
    run_id: str | None,
    deep: bool,
    endpoint: str | None = None,
    region: str | None = None,
) -> list[Row]:
    """Every save of one run, or of all runs, newest first. Raises StoreProblem, LookupError."""
    store = _store_at(url, endpoint=endpoint, region=region)
    if run_id is None and (there := store.get(keys.RUN)) is not None:
        # The URL of a run, not of the store that holds it.
        base, run_id = split_run_url(url.rstrip("/"), there.data)
        store = open_store(base, endpoint=endpoint, region=region)
    runs = [run_id] if run_id else runs_in(store)
    if not runs:
        raise LookupError(
            f"{url} holds no run (no {keys.RUN} below it): give the job's checkpoint.store.url, "
            "and the run with --run-id, by default <namespace>/<name>"
        )
    rows: list[Row] = []
    for name in runs:
        rows += _of_run(store, name, deep=deep)
    if (
        run_id
        and not rows
        and f"{run_id}/{keys.RUN}"
        not in {listed.key for listed in store.list(f"{run_id}/{keys.RUN}")}
    ):
        raise LookupError(f"{url} holds no run {run_id}; it has: {', '.join(runs_in(store))}")
    return rows


def split_run_url(url: str, run: bytes) -> tuple[str, str]:
    """The URL of a run as that of its store and its ID."""
    try:
        told = str(json.loads(run).get("runID") or "")
    except (ValueError, AttributeError):
        told = ""
    if told and url.endswith(f"/{told}"):
        return url.removesuffix(f"/{told}"), told
    base, _, last = url.rpartition("/")
    return base, last


def _store_at(url: str, *, endpoint: str | None, region: str | None) -> Store:
    """The store at that URL; of a checkpoint directory that keeps its run itself, that."""
    parts = urlsplit(url)
    directory = Path(unquote(parts.path))
    if parts.scheme == "file" and keeps_run(directory):
        return kept_in(directory)
    return open_store(url, endpoint=endpoint, region=region)


def _of_run(store: Store, run_id: str, *, deep: bool) -> list[Row]:
    run = Run(
        store=store,
        run_id=run_id,
        cluster_uid="inspect",
        job_uid="inspect",
        rank=0,
        union_gate=union_gate,
    )
    history = run.history()
    rows: list[Row] = []
    for found in run.candidates(history):
        row = _row(run, run_id, history, found, deep=deep)
        usable = bool(row.valid) and found.full_state is not False
        is_first = not any(earlier.current for earlier in rows)
        rows.append(replace(row, current=usable and is_first))
    for save in reversed(lineage(history).branches):
        row = _row(run, run_id, history, candidate(history, save), deep=deep)
        rows.append(replace(row, branch=True))
    return rows


def _row(run: Run, run_id: str, history: History, found: Candidate, *, deep: bool) -> Row:
    manifest = run.manifest(found.name)
    valid: bool | None = False
    status = "Invalid"
    if found.invalid is not None:
        save = keys.parse_name(found.name)
        mark = history.condemned(save) if save is not None else None
        why = mark.message if mark is not None else found.invalid
    elif not found.durable:
        valid, status = None, "Uploading"
        why = f"not committed yet; files expected from ranks {found.needs}"
    else:
        findings = run.judging.examine(found.name, deep=deep)
        valid = not findings
        status = manifest.status if manifest is not None and valid else "Invalid"
        how = "every byte read" if deep else "sizes and checksums of the store"
        why = findings[0].message if findings else f"committed, whole ({how})"
    return Row(
        run=run_id,
        name=found.name,
        step=found.step,
        epoch=found.epoch,
        loss=found.loss,
        size=found.bytes,
        layout=manifest.layout if manifest is not None else "",
        valid=valid,
        status=status,
        why=why,
        full_state=found.full_state,
    )
