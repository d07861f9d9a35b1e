"""What a trainer told of its steps, kept past the save: the first pass of steps that are run twice.

`trail.json` in the pod's run directory holds the attempts before; a few records go with each save,
for a pod that is new. Bounded. Must never mix attempts of another size or another line of saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from pydantic import Field, ValidationError
from rtj_api.rules.replay import FirstPass, Record
from rtj_api.wire import Wire

from rtj_sidecar.trainer.signs import Sign
from rtj_sidecar.trainer.supervisor_link import write_whole

KEPT = 2048  # steps of each kind
BEGIN = 8  # first steps of the job
WITH_SAVE = 16  # newest steps that go with a save
FACT = "trail"
_FIELDS = ("step", "loss", "grad_norm", "lr", "samples", "batch")


class Trail(Wire):
    """As it lies on disk, and in the facts of a save. A record is a list, in the order of
    `Record`: step, loss, grad_norm, lr, samples, batch."""

    world: int = 0
    records: list[list[Any]] = Field(default_factory=list)
    begin: list[list[Any]] = Field(default_factory=list)


class Attempt(TypedDict):
    world: int  # pods
    scratch: bool  # it began from nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Of the running attempt, by source: a progress file is exact, a log line is advice."""

    file: tuple[Record, ...] = ()
    log: tuple[Record, ...] = ()

    def with_file(self, told: Iterable[Sign]) -> Steps:
        new = [record for sign in told if (record := _record(sign, sign.step)) is not None]
        return replace(self, file=_joined(self.file, new)) if new else self

    def with_log(self, told: Iterable[tuple[Sign, int | None]]) -> Steps:
        """Each line with the last step that was printed, in it or before it: some frameworks print
        the loss beside the step, some below it."""
        new = [record for sign, step in told if (record := _record(sign, step)) is not None]
        return replace(self, log=_joined(self.log, new)) if new else self

    @property
    def best(self) -> tuple[Record, ...]:
        return self.file or self.log


def _record(sign: Sign, step: int | None) -> Record | None:
    told = (sign.loss, sign.grad_norm, sign.lr, sign.samples, sign.batch)
    if step is None or all(value is None for value in told):
        return None
    return Record(
        step=step,
        loss=sign.loss,
        grad_norm=sign.grad_norm,
        lr=sign.lr,
        samples=sign.samples,
        batch=sign.batch,
    )


def _joined(old: tuple[Record, ...], new: Sequence[Record]) -> tuple[Record, ...]:
    return (*old, *new)[-KEPT:]


def first_pass(trail: Trail) -> FirstPass:
    known = [record for row in trail.records if (record := _read(row)) is not None]
    begin = [record for row in trail.begin if (record := _read(row)) is not None]
    return FirstPass(records={record.step: record for record in known}, begin=begin)


def joined(own: Trail, saved: Trail, *, world: int) -> Trail:
    """What the pod saw itself, and before it what the save records; of a gang of that size only."""
    rows: dict[int, list[Any]] = {}
    for trail in (own, saved):
        if trail.world in (0, world):
            rows = {**_rows(trail), **rows}
    records = [rows[step] for step in sorted(rows)][-KEPT:]
    return Trail(world=world, records=records, begin=own.begin or saved.begin)


def next_trail(old: Trail, steps: Steps, *, world: int, scratch: bool, bad: int | None) -> Trail:
    """What is known once an attempt of `world` pods is over; `scratch`: it began from nothing.

    The first pass of a step stays. From `bad` on what it told was no training and is forgotten.
    """
    best = [r for r in steps.best if bad is None or r.step < bad]
    begin = [_row(r) for r in best[:BEGIN]] if scratch else old.begin
    known: dict[int, list[Any]] = {}
    if not scratch and old.world in (0, world):
        known = _rows(old)
    for record in best:
        known.setdefault(record.step, _row(record))
    rows = [known[step] for step in sorted(known)][-KEPT:]
    return Trail(world=world, records=rows, begin=begin)


def with_save(old: Trail, steps: Steps, *, world: int, scratch: bool, step: int | None) -> Trail:
    """What goes with a save of that step: how the job began, and its newest steps."""
    whole = next_trail(old, steps, world=world, scratch=scratch, bad=None)
    upto = [row for row in whole.records if step is None or row[0] <= step]
    return whole.model_copy(update={"records": upto[-WITH_SAVE:]})


def _rows(trail: Trail) -> dict[int, list[Any]]:
    """By step; without those that were not written by this."""
    return {found.step: row for row in trail.records if (found := _read(row)) is not None}


def _row(record: Record) -> list[Any]:
    # JSON has no NaN; what was no number is told by a word.
    return [
        str(value) if isinstance(value, float) and value - value != 0 else value
        for value in (getattr(record, name) for name in _FIELDS)
    ]


def _read(row: Sequence[Any]) -> Record | None:
    """None for a row that was not written by this."""
    if len(row) < len(_FIELDS) or not isinstance(row[0], int) or isinstance(row[0], bool):
        return None
    try:
        numbers = [None if value is None else float(value) for value in row[1:5]]
    except (TypeError, ValueError, OverflowError):
        return None
    loss, grad_norm, lr, samples = numbers
    batch = row[5] if isinstance(row[5], str) else None
    return Record(step=row[0], loss=loss, grad_norm=grad_norm, lr=lr, samples=samples, batch=batch)


def parsed(found: object) -> Trail:
    """Of a save's facts, or of a file; an empty one where it is none."""
    try:
        return Trail.model_validate(found)
    except ValidationError:
        return Trail()


class TrailFile:
    """One that cannot be read is an empty one: nothing rests on it but a comparison."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Trail:
        try:
            return Trail.model_validate_json(self._path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, ValueError):
            return Trail()

    def write(self, trail: Trail) -> None:
        """Raises OSError."""
        write_whole(self._path, trail.dump_json())
