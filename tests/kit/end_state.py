"""The laws that every story must end by, whatever was hurt: checked on what really happened.

Evidence is what the parts cannot touch up: every version of status as the API server gave it, the
trainers' own output, and the store's content beside the requests that reached it. Must never ask
the operator or a sidecar whether it did right.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rtj_api.status import Status
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.history import History, read_history
from rtj_sidecar.runs.keys import parse_manifest
from rtj_sidecar.runs.lineage import lineage
from rtj_sidecar.runs.records import Outcome
from rtj_sidecar.stores.open import open_store

from kit import toy_trainer
from kit.s3 import S3Server
from kit.simulated_laws import LawBroken, rising

BEGIN = re.compile(r"^BEGIN attempt (\d+) rank (\d+) step (\d+)$", re.MULTILINE)
RESULT = re.compile(r"^RESULT (\d+) (\d+)$", re.MULTILINE)
RECORD = re.compile(r"^PUT \S*?/(fences/(\d{8})\.json|manifests/f\d+-n\d+\.json)(\?|$)")


def check_status(statuses: Sequence[Status], *, steps: int) -> None:
    """It succeeded, and no counter and no durable step ever went back or jumped."""
    end = statuses[-1]
    _hold(end.phase == "Succeeded", f"it ended as {end.phase}")
    _hold(end.completions == 1, f"{end.completions} completions")
    _hold(end.checkpoint.last_durable_step == steps, "its last save is durable")
    for old, new in pairwise(statuses):
        rising(old, new)
    chosen = {s.resume.attempt for s in statuses if s.resume is not None}
    _hold(end.starts == len(chosen), f"{end.starts} starts, chosen for attempts {chosen}")
    automatic = end.starts - 1  # nobody asked for one, and the first is none
    _hold(end.restarts == automatic, f"{end.restarts} restarts in {end.starts} starts")
    started = {r.attempt for r in end.attempts if r.started}
    _hold(started == chosen, f"attempts {started} are told as started, {chosen} were")
    numbers = [r.attempt for r in end.attempts]
    _hold(numbers == sorted(set(numbers)), f"the history of attempts is in order: {numbers}")
    _check_times(end)


def _check_times(end: Status) -> None:
    """The stages of an attempt that got to a step sum to the time that it took to get there, and
    the ledger covers the job's whole life."""
    current, ledger = end.current, end.ledger
    assert current is not None
    assert ledger is not None
    _hold(ledger.until == end.completion_time, f"the ledger ends at {ledger.until}")
    _hold(ledger.seconds.productive > 0, f"some of the time was work: {ledger.seconds}")
    record = end.attempts[-1]
    if current.fault_at is None or current.first_step_at is None:
        return
    stages = [v for v in record.phases.model_dump().values() if v is not None]
    whole = current.first_step_at - current.fault_at
    _hold(all(v >= 0 for v in stages), f"no stage is negative: {record.phases}")
    _hold(abs(sum(stages) - whole) < 0.01, f"stages {record.phases} do not sum to {whole:.3f} s")


def check_trainers(outputs: Sequence[str], *, statuses: Sequence[Status], steps: int) -> None:
    """Each rank trained each attempt at most once, from the save that was chosen for it, and what
    came out is what an uninterrupted run gives."""
    resumed: dict[int, int] = {}
    for status in statuses:
        if status.resume is not None:
            resumed[status.resume.attempt] = status.resume.step or 0
    begun: set[tuple[int, int]] = set()
    for output in outputs:
        for attempt, rank, step in (map(int, found) for found in BEGIN.findall(output)):
            _hold((attempt, rank) not in begun, f"rank {rank} trained attempt {attempt} twice")
            begun.add((attempt, rank))
            _hold(attempt in resumed, f"rank {rank} trained attempt {attempt}, which never started")
            _hold(
                step == resumed[attempt],
                f"rank {rank} began attempt {attempt} at step {step}, not at {resumed[attempt]}",
            )
    last = statuses[-1].attempt
    ranks = range(len(statuses[-1].placements))
    _hold(all((last, rank) in begun for rank in ranks), f"all ranks trained attempt {last}")
    results = [tuple(map(int, found)) for output in outputs for found in RESULT.findall(output)]
    _hold(len(results) >= len(ranks), f"a rank has no result: {results}")
    wanted = (steps, toy_trainer.expected(steps))
    _hold(set(results) == {wanted}, f"results {set(results)}, not {wanted}")


def check_store(
    s3: S3Server,
    *,
    run_id: str,
    requests: Sequence[tuple[str, int | None]],
    credentials: Path,
) -> History:
    """No save that was ever committed is lost or unreachable, each is whole, and none was
    published by a fence that was not the highest."""
    credentials.mkdir(exist_ok=True)
    for name, value in s3.environment().items():
        (credentials / name).write_text(value)
    store = open_store(s3.url(), endpoint=s3.endpoint, credentials_dir=credentials)
    context = Context(
        store=store,
        run_id=run_id,
        cluster_uid="",
        job_uid="",
        rank=0,
        now=lambda: 0.0,
        new_id=lambda: "",
    )
    history = read_history(context)
    _hold(not history.broken, f"broken records: {history.broken}")
    highest = 0
    for request, answer in requests:
        found = RECORD.match(request)
        if found is None or answer != 200:
            continue
        if found[2]:
            highest = max(highest, int(found[2]))
            continue
        save = parse_manifest(found[1])
        assert save is not None
        _hold(save in history.manifests, f"{save} was committed and is gone")
        by = history.manifests[save].committed_by_fence
        _hold(by == highest, f"{save} was committed by fence {by}, the highest was {highest}")
    for save, manifest in history.manifests.items():
        for file in manifest.files:
            body = store.get(context.full(file.key))
            _hold(body is not None, f"{save}: {file.key} is gone")
            digest = hashlib.sha256(body.data).hexdigest() if body else ""
            _hold(digest == file.sha256, f"{save}: {file.key} has other bytes")
    known = lineage(history)
    _hold(not known.branches, f"cannot be reached from the newest fence: {known.branches}")
    _hold(history.fences[-1].outcome == Outcome.COMPLETE, "the run is closed as complete")
    return history


def _hold(fact: bool, what: str) -> None:
    if not fact:
        raise LawBroken(what)


def as_statuses(raw: Sequence[dict[str, Any]]) -> list[Status]:
    return [Status.model_validate(status) for status in raw]
