"""What this rank's saves cost: the stall that the trainer feels, their writing, their upload.

Measured for the report; the operator's advice on how far apart saves should be is made of it. Must
never decide anything here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtj_sidecar.localsave import LocalSave
from rtj_sidecar.station import Station
from rtj_sidecar.trainer.pace import Saved, usual_spacing


@dataclass(frozen=True, slots=True)
class Costs:
    """The fields of `wire.CheckpointView` of these names."""

    stall_seconds: float
    stalls: int
    interval_seconds: float | None
    save_bytes: int | None
    writing_seconds: float | None
    upload_bytes: int | None
    upload_seconds: float | None


def note_sign(at: Station, *, told_at: float) -> None:
    """A line was read that was written at `told_at`: a step may be told in it."""
    progress = at.progress
    step = progress.log.step if progress.file.step is None else progress.file.step
    if step is not None:
        at.pace = at.pace.with_sign(step, at=told_at)


def note_save(at: Station, local: LocalSave) -> None:
    """The trainer of this attempt has finished that save."""
    record = local.record
    if record.begun_at is not None and record.finished_at is not None:
        saved = Saved(begun=record.begun_at, ended=record.finished_at, step=record.facts.step)
        at.pace = at.pace.with_save(saved)


def costs_of(at: Station, saves: Sequence[LocalSave]) -> Costs:
    """`saves`: what is kept here of this rank's own, oldest first."""
    own = [save for save in saves if save.record.attempt == at.attempt]
    newest = own[-1] if own else None
    writing = None
    if newest is not None and newest.record.begun_at is not None:
        writing = round(newest.record.ended_at - newest.record.begun_at, 3)
    sent = at.sent
    return Costs(
        stall_seconds=round(max(0.0, at.pace.stall), 3),
        stalls=at.pace.stalls,
        interval_seconds=usual_spacing([(s.record.facts.step, s.record.ended_at) for s in own]),
        save_bytes=newest.bytes if newest is not None else None,
        writing_seconds=writing,
        upload_bytes=sent.bytes if sent is not None else None,
        upload_seconds=round(sent.seconds, 3) if sent is not None else None,
    )
