"""Pinning a save that finished: the moment from which it cannot be lost to the trainer's rotation.

Must never pin bytes other than those that were judged, and never let a companion that does not
rest keep a save from being pinned.
"""

from __future__ import annotations

import time
from dataclasses import replace

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.pin_choice import PinHow, how_to_pin
from rtj_sidecar.checkpoints.pins import Pin, PinError, pin_save
from rtj_sidecar.checkpoints.types import FoundSave, Verdict
from rtj_sidecar.checkpoints.written import when_written
from rtj_sidecar.directory import Directory
from rtj_sidecar.directory_problem import DISK_ERRORS, DirectoryProblem, problem_of
from rtj_sidecar.localsave import LocalSave, PinRecord, facts_of, pin_id, write_record
from rtj_sidecar.room import make_room


def pin_found(
    directory: Directory,
    found: FoundSave,
    *,
    verdict: Verdict,
    attempt: int,
    since: float,
    noticed_at: float | None = None,
) -> LocalSave:
    """Pin a finished save and remember who made it. Raises DirectoryProblem; try again later.

    `since` is when the trainer of that attempt was started, `noticed_at` when a look first found
    the save unfinished, both in Unix seconds. The companions of this moment and the pointers that
    name the save go with it.
    """
    snapshot = directory.sight.snapshot
    companions = (*snapshot.companions, *directory.ledger.loose_beside(found, snapshot))
    pointers = [p for p in snapshot.pointers if p.names == found.root_key]
    extra: dict[str, object] = {
        "carried": directory.ledger.carried_beside(found, snapshot),
        "aliases": [entry.path for entry in found.aliases],
        "companions": [entry.path for entry in companions],
        "pointers": [{"path": p.path, "kind": p.kind.value, "value": p.value} for p in pointers],
    }
    try:
        try:
            whole = replace(found, aliases=(*found.aliases, *companions))
            pin = _pin(directory, whole)
        except PinError:
            # A companion may be a log that never rests; the save itself must not wait for it.
            extra["companions"] = []
            pin = _pin(directory, found)
        facts, now = facts_of(found, verdict), time.time()
        before = [s.record.ended_at for s in directory.saves if s.record.attempt == attempt]
        written = when_written(
            found.files,
            reader=directory.reader,
            since=since,
            after=max(before, default=since),
            seen=now,
        )
        record = PinRecord(
            run_id=directory.run_id,
            attempt=attempt,
            ordinal=directory.next_ordinal(),
            facts=facts.model_copy(update={"facts": {**facts.facts, **extra}}),
            seen_at=now,
            begun_at=written.begun if written is not None else None,
            finished_at=written.ended if written is not None else None,
            noticed_at=noticed_at,
        )
        write_record(directory.path, pin.id, record)
        directory.ledger.note(found)
    except OSError as error:
        raise problem_of(error, directory.path, "write to") from error
    except PinError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in DISK_ERRORS:
            raise problem_of(cause, directory.path, "write to") from error
        raise DirectoryProblem(Reason.CHECKPOINT_TORN, str(error)) from error
    return directory.hold(LocalSave(pin, record))


def _pin(directory: Directory, found: FoundSave) -> Pin:
    how = how_to_pin(save=found, history=directory.sight.history)
    make_room(directory, sum(e.size for e in found.all_files if how.get(e.path) is PinHow.COPY))
    return pin_save(reader=directory.reader, save=found, pin_id=pin_id(found), how=how)
