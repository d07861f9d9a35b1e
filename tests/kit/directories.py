"""A checkpoint directory of one pod, as the sidecar knows it, without processes around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.types import Expectations, FoundSave, Verdict
from rtj_sidecar.directory import Directory
from rtj_sidecar.localsave import LocalSave
from rtj_sidecar.pinning import pin_found

from kit.trainers.counter import write_checkpoint

GONE = Writers(gone=True)


@dataclass
class Place:
    """`save` as a trainer would, `pin_all` as a look after its end would."""

    path: Path
    options: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.directory = self.open()

    def open(self) -> Directory:
        """A new sidecar on the same directory."""
        known: dict[str, object] = {
            "run_id": "ns/gpt",
            "layout": "auto",
            "include": (),
            "expect": Expectations(),
        }
        self.directory = Directory(self.path, **known | self.options)  # type: ignore[arg-type]
        return self.directory

    def save(self, name: str, *, step: int, state: int = 7, floats: int = 16) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(path, step=step, state=state, floats=floats)
        return path

    def judged(self, writers: Writers = GONE) -> list[tuple[FoundSave, Verdict]]:
        return list(self.directory.look(writers=writers).judged)

    def pin_all(
        self, *, attempt: int = 1, name: Callable[[FoundSave], str] | None = None, **record: object
    ) -> list[LocalSave]:
        pinned = []
        for found, verdict in self.judged():
            if verdict.candidate and self.directory.ledger.is_news(found):
                local = pin_found(
                    self.directory, found, verdict=verdict, attempt=attempt, since=0.0
                )
                changes = {**({"name": name(found)} if name else {}), **record}
                pinned.append(self.directory.update(local, **changes))
        return pinned
