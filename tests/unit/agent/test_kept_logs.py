"""The output of every attempt is in the store, whoever ended it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.alone import begin
from kit.orders import gone, prepared
from kit.podlike import PodLike
from kit.supervised import wait_for
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, SidecarPhase
from rtj_sidecar import kept_logs
from rtj_sidecar.kept_logs import KEPT, KeptLogs, tail_of
from rtj_sidecar.stores.base import StoreProblem


def log_of(tmp_path: Path, attempt: int) -> Path:
    return tmp_path / f"store/ns/gpt/logs/{attempt}/0.txt"


def test_of_an_attempt_that_was_stopped_before_its_pod_is_said_to_be_drained(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = begin(pods, tmp_path)
    prepared(pod, 1)
    gone(pod, 1)
    pod.until(lambda r: r.checkpoint.last_durable_step)
    pod.direct(Phase.STOP, 2)
    pod.until(lambda r: r.attempt == 2 and r.phase is SidecarPhase.DRAINED)
    assert "step 1 " in log_of(tmp_path, 1).read_text()


def test_of_an_attempt_that_the_next_one_ended(pods: list[PodLike], tmp_path: Path) -> None:
    pod = begin(pods, tmp_path)
    prepared(pod, 1)
    gone(pod, 1)
    pod.until(lambda r: r.checkpoint.last_durable_step)
    prepared(pod, 2)
    wait_for(lambda: log_of(tmp_path, 1).exists())
    assert "step 1 " in log_of(tmp_path, 1).read_text()


class Store:
    """What `run.moving` is here: away until told otherwise."""

    def __init__(self) -> None:
        self.is_away = True
        self.texts: dict[str, str] = {}

    def put_text(self, key: str, text: str) -> None:
        if self.is_away:
            raise StoreProblem(Reason.STORE_UNREACHABLE, "away")
        self.texts[key] = text


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(kept_logs, "MIN_BACK_OFF", 0.01)
    monkeypatch.setattr(kept_logs, "MAX_BACK_OFF", 0.01)
    monkeypatch.setattr(kept_logs, "HOLD_SECONDS", 0.05)
    return Store()


def kept(store: Store, path: Path) -> KeptLogs:
    site = SimpleNamespace(config=SimpleNamespace(rank=0))
    station: Any = SimpleNamespace(run=SimpleNamespace(moving=store), site=site)
    return KeptLogs(station, path=path)


async def test_a_store_that_is_away_holds_nobody_up_and_gets_it_later(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "trainer.log"
    path.write_text("the end of attempt 1\n")
    logs = kept(store, path)
    logs.keep(1)
    await logs.away()
    assert store.texts == {}
    path.write_text("the end of attempt 1\nattempt 2\n")
    store.is_away = False
    await asyncio.wait_for(_until(lambda: store.texts), 10)
    assert store.texts == {"logs/1/0.txt": "the end of attempt 1\n"}


async def test_no_more_than_a_few_wait_in_memory(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "trainer.log"
    path.write_text("x")
    logs = kept(store, path)
    for attempt in range(1, KEPT + 3):
        logs.keep(attempt)
    store.is_away = False
    await asyncio.wait_for(_until(lambda: len(store.texts) == KEPT), 10)
    await logs.away()
    assert sorted(store.texts) == [f"logs/{n}/0.txt" for n in range(3, KEPT + 3)]


def test_the_tail_spans_both_halves_and_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "trainer.log"
    assert tail_of(path) == ""
    path.with_name("trainer.log.1").write_text("a" * kept_logs.TAIL_BYTES + "older\n")
    path.write_bytes(b"newer \xff\n")
    text = tail_of(path)
    assert text.endswith("older\nnewer \ufffd\n")
    assert len(text.encode("utf-8", "replace")) <= kept_logs.TAIL_BYTES + 2


async def _until(fact: Any) -> None:
    while not fact():
        await asyncio.sleep(0.01)
