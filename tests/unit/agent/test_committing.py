"""What follows a durable save, in order: leftovers are swept before anything is archived."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from rtj_sidecar import committing
from rtj_sidecar.committing import Committing
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.keeping import Keep
from rtj_sidecar.runs.sweep import Swept


class Told:
    """A run and its reporter: the calls that came, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.go_on = threading.Event()
        self.tending = SimpleNamespace(archive=self.archive)
        self.publishing = self

    def try_commit(self, *_: object, **__: object) -> Committed:
        return Committed(SimpleNamespace())  # type: ignore[arg-type]

    def sweep(self, *, fence: int) -> Swept:
        self.calls.append(f"sweep {fence}")
        return Swept(0, ())

    def archive(self, *, fence: int, **_: object) -> None:
        self.calls.append(f"archive {fence}")
        assert self.go_on.wait(60)

    def heal(self, key: str) -> None:
        pass


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr(committing, "keep_of", lambda _: Keep(archive_after=0.0))
    monkeypatch.setattr(Committing, "_committed", lambda *_: None)
    return Told()


def committing_of(told: Told) -> tuple[Committing, Any]:
    station: Any = SimpleNamespace(
        run=told,
        reporter=told,
        fence=1,
        attempt=1,
        may_publish=True,
        closing=threading.Event(),
        site=SimpleNamespace(config=None),
        journal=SimpleNamespace(entry=SimpleNamespace(resume=None)),
    )
    ships: Any = SimpleNamespace(open={"s": SimpleNamespace(made_in=1, generations={})})
    word: Any = SimpleNamespace(without=lambda _: ())
    return Committing(station, ships, word), station


async def commit(made: Committing) -> None:
    ship: Any = SimpleNamespace(name="s")
    await made.commit(ship, is_awaited=False)


async def reached(told: Told, calls: list[str]) -> None:
    async with asyncio.timeout(60):
        while told.calls != calls:
            await asyncio.sleep(0.01)


async def _swept_first(told: Told) -> list[str]:
    made, station = committing_of(told)
    try:
        await commit(made)
        await reached(told, ["sweep 1", "archive 1"])
        # Another attempt in the same pod while a file still moves: that is no leftover.
        station.fence = 2
        await commit(made)
        assert told.calls == ["sweep 1", "archive 1"]
    finally:
        told.go_on.set()
    assert made._moving is not None
    await made._moving
    await commit(made)
    await reached(told, ["sweep 1", "archive 1", "sweep 2", "archive 2"])
    assert made._moving is not None
    await made._moving
    return told.calls


def test_leftovers_are_swept_before_anything_moves(told: Told) -> None:
    calls = asyncio.run(_swept_first(told))
    assert calls == ["sweep 1", "archive 1", "sweep 2", "archive 2"]


def test_what_ends_the_moving_is_said(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        def broken(**_: object) -> None:
            raise ZeroDivisionError

        told.tending.archive = broken
        made, _ = committing_of(told)
        await commit(made)
        assert made._moving is not None
        await asyncio.wait([made._moving])
        await asyncio.sleep(0)

    with caplog.at_level("ERROR"):
        asyncio.run(go())
    assert "moving saves to the archive ended" in caplog.text
