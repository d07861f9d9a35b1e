"""A gang that hangs where nobody hears its reports: rank 0 ends it, and says who is to blame."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.ganglike import Gang
from kit.supervised import wait_for
from rtj_api.contract import MESSAGE_MAX_BYTES
from rtj_api.reasons import Reason
from rtj_api.rules.hang import Standing
from rtj_api.wire import (
    Directive,
    PaceView,
    Phase,
    Report,
    SidecarPhase,
    StallView,
    ThroughStore,
)
from rtj_sidecar import storemode
from rtj_sidecar.agreeing import Place
from rtj_sidecar.runs.records import ReadyRecord, ReadyState
from rtj_sidecar.silent_gang import FRESH_SECONDS, SilentGang
from rtj_sidecar.storemode import StoreMode
from rtj_sidecar.stores.base import StoreProblem

# Steps of a tenth of a second, until somebody says: wait.
TRAINER = """
import sys, time
from pathlib import Path
step = 0
while True:
    step += 1
    print(f"step {step} loss 2.0", flush=True)
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        sum(range(2000))
    while Path(sys.argv[1]).exists():
        time.sleep(0.5)
"""


def made(tmp_path: Path, **options: object) -> Gang:
    def command(_: Path) -> list[str]:
        return [sys.executable, "-u", "-c", TRAINER, str(tmp_path / "wait")]

    return Gang(tmp_path, command=command, hang_timeout_seconds=6.0, **options)


def until_trains(gang: Gang) -> None:
    for pod in gang.ranks:
        pod.until(lambda r: (r.progress.step or 0) > 20, seconds=60)


@pytest.mark.parametrize("begins", ["through the store", "with reports"])
def test_it_is_ended_and_the_containers_end_tells_why(tmp_path: Path, begins: str) -> None:
    gang = made(tmp_path)
    try:
        if begins == "with reports":
            gang.begin()
            until_trains(gang)
        gang.direct(Phase.GO, 1, through_store=ThroughStore())
        until_trains(gang)
        (tmp_path / "wait").touch()
        trainer = gang.ranks[0].trainer
        assert trainer is not None
        wait_for(lambda: trainer.process.poll() is not None, seconds=60, why=gang.ranks[0].log())
        text = trainer.termination_log.read_text()
        assert len(text.encode()) <= MESSAGE_MAX_BYTES
        words = Report.model_validate_json(text)
        assert trainer.process.returncode != 0
        assert words.phase is SidecarPhase.FAILED
        assert words.problem is not None
        assert words.problem.reason == Reason.TRAINER_HUNG
        assert "hung: no step" in words.problem.message
        assert words.stall is None
    finally:
        gang.end()


def test_it_is_only_told_where_a_person_wants_that(tmp_path: Path) -> None:
    gang = made(tmp_path, restarts_hung=False)
    try:
        gang.direct(Phase.GO, 1, through_store=ThroughStore())
        until_trains(gang)
        (tmp_path / "wait").touch()
        wait_for(lambda: "hung: no step" in gang.ranks[0].log(), seconds=60)
        (tmp_path / "wait").unlink()
        before = gang.ranks[0].report().progress.step or 0
        gang.ranks[0].until(lambda r: (r.progress.step or 0) > before, seconds=60)
    finally:
        gang.end()


async def test_a_rank_whose_fence_is_not_there_asks_for_it_now_and_then() -> None:
    """Another attempt has taken the run, perhaps: every silent rank asks the store."""
    asked: list[int] = []
    reporter = SimpleNamespace(current=SimpleNamespace(stall=object()))
    run = SimpleNamespace(agreement=SimpleNamespace(fence_of=asked.append))
    at = SimpleNamespace(reporter=reporter, is_training=True, run=run)
    mode = StoreMode(at, None)  # type: ignore[arg-type]
    told = Directive(
        job_uid="j", pod_uid="p", rank=1, attempt=3, seq=3, phase=Phase.GO, world_size=2
    )
    for _ in range(5):
        await mode._look_for_hang(told)
    assert asked == [3]


async def test_a_hang_that_is_only_told_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may last for days, until a person comes."""
    monkeypatch.setattr(storemode, "HANG_LOOK_SECONDS", 0.0)
    config = SimpleNamespace(hang_timeout_seconds=None, restarts_hung=False)
    told = Directive(
        job_uid="j", pod_uid="p", rank=0, attempt=3, seq=3, phase=Phase.GO, world_size=2
    )
    at = SimpleNamespace(
        reporter=SimpleNamespace(current=SimpleNamespace(stall=object())),
        is_training=True,
        run=SimpleNamespace(agreement=SimpleNamespace(said=lambda **_: {})),
        site=SimpleNamespace(config=config),
        directive=told,
    )
    mode = StoreMode(at, SimpleNamespace())  # type: ignore[arg-type]
    mode._agreeing.place = Place(1, 3, ReadyState.RESTORED)
    monkeypatch.setattr(mode._silent, "hang", lambda *_, **__: "rank 1 hung")
    with caplog.at_level("WARNING", logger="rtj.sidecar"):
        for _ in range(3):
            await mode._look_for_hang(told)
    assert [record.getMessage() for record in caplog.records] == ["rank 1 hung"]


async def test_an_end_is_looked_at_though_the_store_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a trainer that failed would be waited for until the store is back."""
    told = Directive(
        job_uid="j",
        pod_uid="p",
        rank=1,
        attempt=3,
        seq=3,
        phase=Phase.GO,
        world_size=2,
        through_store=ThroughStore(),
    )
    problems: list[str] = []
    reporter = SimpleNamespace(degrade=lambda _, reason, __: problems.append(reason))
    entry = SimpleNamespace(passed_on=0)
    at = SimpleNamespace(reporter=reporter, directive=told, journal=SimpleNamespace(entry=entry))
    mode = StoreMode(at, None)  # type: ignore[arg-type]
    mode._agreeing.place = Place(1, 3, ReadyState.RESTORED)
    looked = asyncio.Event()

    def silent() -> None:
        raise StoreProblem(Reason.STORE_UNREACHABLE, "no answer", transient=True)

    async def look(_: Directive) -> None:
        looked.set()

    monkeypatch.setattr(mode._agreeing, "write", silent)
    monkeypatch.setattr(mode, "_look_at_end", look)
    looping = asyncio.create_task(mode.loop())
    await asyncio.wait_for(looked.wait(), 20)
    await asyncio.sleep(0)
    looping.cancel()
    assert problems == [Reason.STORE_UNREACHABLE]


# --- the judgement ---


def record(rank: int, *, at: float, since: float | None, **stall: object) -> ReadyRecord:
    """`at`: by that pod's clock."""
    told = None
    if since is not None:
        fields = {"pace": PaceView(usual=1.0), "standing": Standing.STILL, **stall}
        told = StallView(since=since, **fields)  # type: ignore[arg-type]
    return ReadyRecord(
        fence=1,
        rank=rank,
        attempt=1,
        pod_uid=f"uid-{rank}",
        state=ReadyState.RESTORED,
        stall=told,
        written_at=at,
    )


def judged(*records: ReadyRecord, now: float, gang: SilentGang | None = None) -> str | None:
    said = {r.rank: r for r in records}
    one = gang or SilentGang()
    return one.hang(said, world_size=2, now=now, monotonic=now)


def test_a_gang_of_which_all_are_silent_hangs() -> None:
    still = [record(rank, at=1005.0, since=1000.0 - rank) for rank in (0, 1)]
    gang = SilentGang()
    assert judged(*still, now=1005.0, gang=gang) is None
    found = judged(*still, now=1030.5, gang=gang)
    assert found is not None
    assert found.startswith("rank 1 hung")


def test_the_other_pods_clock_may_be_wrong() -> None:
    gang = SilentGang()
    records = (record(0, at=1005.0, since=1000.0), record(1, at=5.0, since=0.0))
    assert judged(*records, now=1005.0, gang=gang) is None
    assert judged(*records, now=1029.9, gang=gang) is None
    assert judged(*records, now=1030.1, gang=gang) is not None


@pytest.mark.parametrize("other", ["none", "gives signs", "old"])
def test_unknown_is_not_hung(other: str) -> None:
    gang, mine = SilentGang(), record(0, at=1005.0, since=1000.0)
    theirs = {
        "none": [],
        "gives signs": [record(1, at=1005.0, since=None)],
        "old": [record(1, at=1005.0, since=1000.0)],
    }[other]
    assert judged(mine, *theirs, now=1005.0, gang=gang) is None
    later = 1005.0 + FRESH_SECONDS + 1
    assert judged(record(0, at=later, since=1000.0), *theirs, now=later, gang=gang) is None
