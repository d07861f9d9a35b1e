"""A large save may take long to prove; the store has answered all the same."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from rtj_api.reasons import Reason
from rtj_api.wire import SidecarPhase
from rtj_sidecar import preparing, storing
from rtj_sidecar.attempts import Attempts
from rtj_sidecar.background import Background
from rtj_sidecar.preparing import Preparing
from rtj_sidecar.recalling import Recalling
from rtj_sidecar.runs.fence import Claimed
from rtj_sidecar.selffence import SelfFence
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.storing import Storing


class SlowRun:
    """A run whose newest save is being fetched until `release` is set, or cannot be."""

    def __init__(self, *, fails: int = 0) -> None:
        self.release = threading.Event()
        self.fails = fails
        self.honours_conditions = True
        self.judging = self.publishing = self  # its saves are judged and completed here, too

    def claim(self, **_: Any) -> Claimed:
        return Claimed(1, MagicMock(parent=None))

    def history(self) -> Any:
        return MagicMock(before=lambda _: None)

    def roll_forward(self, *_: Any, **__: Any) -> Any:
        return MagicMock(committed=(), dropped=())

    def candidates(self, _: Any) -> list[Any]:
        return ["save"]

    def next_n(self, *_: Any) -> int:
        return 1

    def vet(self, candidates: list[Any], **_: Any) -> list[Any]:
        assert self.release.wait(60)
        if self.fails:
            self.fails -= 1
            raise StoreProblem(Reason.STORE_UNREACHABLE, "gone again", transient=True)
        return [MagicMock(invalid=None) for _ in candidates]


class Told:
    """The report, as far as it is set here."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.current = MagicMock(pinned=[])

    def set(self, **fields: Any) -> None:
        self.fields |= fields

    def degrade(self, *_: Any) -> None: ...

    def heal(self, *_: Any) -> None: ...


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[MagicMock, Storing, Preparing]:
    at = MagicMock(reporter=Told(), run=SlowRun(), may_publish=True)
    at.site.path = tmp_path
    holding = MagicMock()
    holding.word.pinned_by_others.return_value = set()
    monkeypatch.setattr(Recalling, "take_in", lambda *_: None)
    monkeypatch.setattr(preparing, "LIST_SECONDS", 0.01)
    monkeypatch.setattr(storing, "MIN_BACK_OFF", 0.01)
    made = Storing(at, MagicMock(), holding)
    at.site.config.fenced_directory = False
    return (
        at,
        made,
        Preparing(at, MagicMock(), MagicMock(), None, made, SelfFence(at), Background(at)),
    )


async def test_the_store_counts_as_listed_while_a_save_is_proved(
    made: tuple[MagicMock, Storing, Preparing],
) -> None:
    at, storing, judge = made
    claiming = asyncio.create_task(storing.claim_and_list(MagicMock(wanted=None)))
    await asyncio.wait_for(storing.listed.wait(), 60)
    assert not storing.vetted.is_set()
    await judge.until_listed(claiming)
    assert (at.reporter.fields["listed"], at.reporter.fields["fence"]) == (True, 1)
    at.tell_candidates.assert_called_once()
    at.run.release.set()
    await asyncio.wait_for(claiming, 60)
    assert storing.vetted.is_set()


async def test_a_store_that_does_not_answer_is_not_listed(
    made: tuple[MagicMock, Storing, Preparing],
) -> None:
    at, _, judge = made
    never = asyncio.create_task(asyncio.Event().wait())
    await judge.until_listed(never)  # type: ignore[arg-type]
    assert at.reporter.fields["listed"] is False
    never.cancel()


async def test_a_restore_waits_for_what_is_being_fetched(
    made: tuple[MagicMock, Storing, Preparing],
) -> None:
    at, storing, _ = made
    ahead = MagicMock(settle=AsyncMock())
    judge = Attempts(at, MagicMock(), MagicMock(), None, storing, SelfFence(at), ahead)
    at.journal.entry.restored_attempt = 0
    at.link.told_to_go.return_value = 0
    restored = asyncio.Event()

    async def restore(_: Any) -> None:
        assert storing.vetted.is_set()
        restored.set()

    judge._restorer = MagicMock(restore=restore)
    claiming = asyncio.create_task(storing.claim_and_list(MagicMock(wanted=None)))
    await asyncio.wait_for(storing.listed.wait(), 60)
    working = asyncio.create_task(judge._restore_only(MagicMock(attempt=1)))
    await asyncio.sleep(0)
    at.set_phase.assert_called_with(SidecarPhase.RESTORING)
    assert not restored.is_set()
    at.run.release.set()
    await asyncio.wait_for(working, 60)
    assert restored.is_set()
    await claiming


async def test_a_store_that_fails_while_a_save_is_proved_is_asked_again(
    made: tuple[MagicMock, Storing, Preparing],
) -> None:
    at, storing, _ = made
    at.run.fails = 1
    seen: list[bool] = []
    at.reporter.degrade = lambda *_: seen.append(storing.vetted.is_set())
    at.run.release.set()
    await asyncio.wait_for(storing.claim_and_list(MagicMock(wanted=None)), 60)
    assert seen == [True]
    assert (at.reporter.fields["listed"], storing.listed.is_set()) == (True, True)
