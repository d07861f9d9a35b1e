"""Pins that nobody needs are dropped; one that the volume does not let go stays, and is told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rtj_api.reasons import Reason
from rtj_sidecar import directory as module
from rtj_sidecar.checkpoints.types import Expectations
from rtj_sidecar.directory import Directory
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.fates import Fates

READ_ONLY = OSError(errno.EROFS, "Read-only file system")


def save(name: str, *, over: str | None = None) -> Any:
    record = SimpleNamespace(name=name, durable=over is None, over=over)
    return SimpleNamespace(pin=SimpleNamespace(id=name), record=record)


class Station:
    """A sidecar's parts as `Fates` sees them, above a volume that may be read-only."""

    def __init__(self) -> None:
        self.overtaken = False
        self.is_read_only = True
        self.saves = [save("s10"), save("s20", over="a newer save went first"), save("s30")]
        self.told: dict[str, Reason] = {}
        self.directory = self.reporter = self
        self.journal = SimpleNamespace(entry=SimpleNamespace(resume=None))
        self.site = SimpleNamespace(config=SimpleNamespace(keep_local=1))

    async def on_disk(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    def drop(self, dropped: Any) -> None:
        if self.is_read_only:
            raise DirectoryProblem(Reason.DIRECTORY_READ_ONLY, "why")
        self.saves = [kept for kept in self.saves if kept is not dropped]

    def degrade(self, key: str, reason: Reason, message: str) -> None:
        assert message
        self.told[key] = reason

    def heal(self, key: str) -> None:
        self.told.pop(key, None)


async def test_what_a_read_only_volume_keeps_is_told_and_dropped_later() -> None:
    station: Any = Station()
    fates = Fates(station, SimpleNamespace())  # type: ignore[arg-type]
    await fates.trim()
    assert len(station.saves) == 3
    assert list(station.told.values()) == [Reason.DIRECTORY_READ_ONLY]
    station.is_read_only = False
    await fates.trim()
    assert [kept.record.name for kept in station.saves] == ["s30"]
    assert station.told == {}


def test_a_pin_that_cannot_be_removed_is_a_problem_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise READ_ONLY

    monkeypatch.setattr(module, "drop_pin", refuse)
    there = Directory(tmp_path, run_id="r", layout="auto", include=(), expect=Expectations())
    with pytest.raises(DirectoryProblem) as raised:
        there.drop(save("s10"))
    assert raised.value.reason is Reason.DIRECTORY_READ_ONLY
