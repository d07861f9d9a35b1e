"""What is remembered of a pinned save: `save.json` beside the pin.

Which attempt made the save, its name in the run once it has one, and whether it is durable; so a
sidecar that was killed, or a new pod on an old volume, knows as much as before. Values only, and
how they are written: must never decide what becomes of a pin.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from rtj_api.wire import Wire

from rtj_sidecar.checkpoints.pins import Pin, pins_dir
from rtj_sidecar.checkpoints.types import FoundSave, Verdict
from rtj_sidecar.runs.records import FileRecord, SaveFacts
from rtj_sidecar.trainer.supervisor_link import write_whole


class PinRecord(Wire):
    """`save.json` beside a pin."""

    run_id: str
    attempt: int  # that made it; of a mirror: that fetched it
    ordinal: int  # counts the saves of this directory
    facts: SaveFacts
    seen_at: float
    begun_at: float | None = None  # as its files tell; None: they do not, or an older sidecar's
    finished_at: float | None = None
    noticed_at: float | None = None  # when a look first found it unfinished, if one did
    name: str | None = None
    fence: int | None = None
    n: int | None = None
    durable: bool = False
    part_done: bool = False  # this rank's part of it is in the store
    wanted: list[FileRecord] | None = None  # what this rank has to restore of it, once known
    wanted_for: str | None = None  # "<rank>/<world size>", where that is less than all of it
    over: str | None = None  # why it will never be durable: skipped, dropped, ignored
    mirror: bool = False  # fetched, not written by this rank's trainer
    alone: bool = False  # when it was named, nobody else had files of it, and none is missing

    @property
    def ended_at(self) -> float:
        """When it was finished, as far as that is known."""
        return self.seen_at if self.finished_at is None else self.finished_at

    @property
    def writing_seconds(self) -> float:
        """How long before it was seen finished it was begun, as far as that is known."""
        begun = [at for at in (self.begun_at, self.noticed_at) if at is not None]
        return max(0.0, self.seen_at - min(begun, default=self.seen_at))


@dataclass(frozen=True, slots=True)
class LocalSave:
    pin: Pin
    record: PinRecord

    @property
    def bytes(self) -> int:
        return sum(file.stamp.size for file in self.pin.files)

    @property
    def is_pending(self) -> bool:
        """Finished here, and nobody has yet made it durable or given it up."""
        return not (self.record.durable or self.record.over or self.record.mirror)


def pin_id(found: FoundSave) -> str:
    return f"s-{found.fingerprint}"


def facts_of(found: FoundSave, verdict: Verdict) -> SaveFacts:
    """What is known of a save, as its records tell it."""
    return SaveFacts(
        root_key=found.root_key,
        layout=found.layout,
        step=found.step,
        epoch=found.epoch,
        loss=found.loss,
        full_state=found.full_state,
        status=verdict.status.value,
        gates=[
            {"name": g.name.value, "passed": g.passed, "detail": g.detail, "reason": g.reason.value}
            for g in verdict.gates
        ],
        facts=dict(verdict.facts),
    )


def read_record(path: Path, pin: str) -> PinRecord | None:
    """None where it is missing or no record."""
    try:
        text = (pins_dir(path) / pin / "save.json").read_text(encoding="utf-8")
        return PinRecord.model_validate_json(text)
    except (OSError, ValidationError):
        return None


def write_record(path: Path, pin: str, record: PinRecord) -> None:
    """Raises OSError."""
    write_whole(pins_dir(path) / pin / "save.json", record.dump_json())
