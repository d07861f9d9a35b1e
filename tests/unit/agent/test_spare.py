"""A spare: a real sidecar and supervisor that wait for a rank, and take it at once."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.ganglike import Gang
from kit.podlike import PodLike, trainer_command
from rtj_api.contract import NO_RANK
from rtj_api.wire import Phase, Report, Resume, SidecarPhase


def slow_command(path: Path) -> list[str]:
    return trainer_command(path, steps=100_000)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path, command=slow_command, mirror="never")
    yield made
    made.end()


def fetched(spare: PodLike, *, beyond: int = 0) -> Report:
    """Its report once it has fetched a save ahead."""

    def has_one(report: Report) -> bool:
        waits = report.standby
        return waits is not None and waits.name is not None and _step(waits.name) > beyond

    return spare.until(has_one, seconds=90)


def _step(name: str) -> int:
    return int(name.rpartition("-s")[2])


def test_a_spare_waits_without_a_rank_and_fetches_what_is_durable(gang: Gang) -> None:
    spare = gang.spare(plays=1)
    first = spare.until(lambda r: r.supervisor_seen)
    assert first.rank == NO_RANK
    assert first.phase is SidecarPhase.IDLE
    assert first.attempt == 0
    assert first.standby is not None
    assert first.standby.spare == 0
    gang.begin()
    report = fetched(spare)
    assert report.standby is not None
    assert report.standby.bytes > 0
    # It wrote nothing into the run, and its trainer was never started.
    assert not list((gang.directory / "store").rglob("-1.json"))
    assert report.trainer.attempt == 0
    with urllib.request.urlopen(spare.url + "/metrics", timeout=5) as page:
        assert 'rank="s0"' in page.read().decode()
    newer = fetched(spare, beyond=_step(report.standby.name or ""))
    assert newer.standby is not None
    kept = [p.name for p in (spare.path / ".rtj" / "incoming").iterdir()]
    assert newer.standby.name in kept
    assert report.standby.name not in kept


@pytest.mark.parametrize("rank", [0, 1])
def test_a_spare_takes_any_rank_and_moves_no_byte(gang: Gang, rank: int) -> None:
    gang.begin()
    spare = gang.spare(plays=rank)
    fetched(spare)
    # All that was saved is durable and fetched: then the rank is lost.
    for pod in gang.ranks:
        pod.kill_trainer()
        pod.until(lambda r: r.phase is SidecarPhase.DRAINED)
    durable = gang.ranks[0].report().checkpoint.last_durable_name
    spare.until(lambda r: r.standby is not None and r.standby.name == durable, seconds=30)
    gang.ranks[rank].end()
    gang.ranks[rank] = spare
    resume = gang.slow_path(2)
    assert resume.name == durable
    report = spare.until(lambda r: (r.progress.step or 0) > (resume.step or 0))
    assert report.rank == rank
    assert report.standby is None
    assert report.checkpoint.restored_bytes == 0
    assert f"at step {resume.step}" in spare.output()


def test_a_spare_takes_a_rank_by_one_directive(gang: Gang) -> None:
    """Told to go at once, as the survivor is: it restores what it has fetched, and trains."""
    gang.begin()
    spare = gang.spare(plays=1)
    fetched(spare)
    for pod in gang.ranks:
        pod.kill_trainer()
        pod.until(lambda r: r.phase is SidecarPhase.DRAINED)
    zero = gang.ranks[0].report()
    durable = zero.checkpoint.last_durable_name
    waits = spare.until(lambda r: r.standby is not None and r.standby.name == durable, seconds=30)
    assert waits.standby is not None
    assert waits.standby.whole
    assert durable is not None
    resume = Resume(run="ns/gpt", name=durable, step=_step(durable), durable=True)
    gang.ranks[1].end()
    gang.ranks[1] = spare
    gang.direct(Phase.GO, 2, resume=resume, fast=True)
    report = spare.until(lambda r: (r.progress.step or 0) > (resume.step or 0))
    assert (report.rank, report.attempt) == (1, 2)
    assert report.checkpoint.restored_bytes == 0
    assert f"at step {resume.step}" in spare.output()
    # The fence is claimed behind the go, and saves of the new gang become durable under it.
    later = gang.ranks[0].until(
        lambda r: _step(r.checkpoint.last_durable_name or "-s0") > (resume.step or 0), seconds=60
    )
    assert later.fence == (zero.fence or 0) + 1


def test_a_placed_spare_keeps_its_rank_through_restarts_and_takes_no_other(gang: Gang) -> None:
    gang.begin()
    spare = gang.spare(plays=1)
    spare.until(lambda r: r.supervisor_seen)
    gang.ranks[1].end()
    gang.ranks[1] = spare
    gang.slow_path(2)
    spare.until(lambda r: r.progress.first_step_at)
    spare.kill_agent()
    spare.start_agent()
    report = spare.until(lambda r: r.phase is SidecarPhase.TRAINING)
    assert (report.rank, report.attempt) == (1, 2)
    spare.plays = 0
    spare.direct(Phase.PREPARE, 3, world_size=2)
    spare.plays = 1
    gang.ranks[0].direct(Phase.PREPARE, 3, world_size=2)
    gang.ranks[0].until_phase(SidecarPhase.PREPARED, 3)
    assert (spare.report().rank, spare.report().attempt) == (1, 2)
    assert "this pod plays rank 1" in spare.log()


def test_a_directive_of_another_pod_or_job_gives_a_spare_no_rank(gang: Gang) -> None:
    spare = gang.spare(plays=1)
    spare.until(lambda r: r.supervisor_seen)
    uid, spare.uid = spare.uid, "uid-of-an-older-pod"
    spare.direct(Phase.PREPARE, 1, world_size=2)
    spare.uid = uid
    gang.direct(Phase.PREPARE, 1)
    gang.until(SidecarPhase.PREPARED, 1)
    assert spare.report().standby is not None
    spare.direct(Phase.PREPARE, 1, world_size=2, coordinator=gang.ranks[0].address)
    assert spare.until_phase(SidecarPhase.PREPARED, 1).rank == 1


def test_a_spare_that_is_ended_leaves_at_once(gang: Gang) -> None:
    spare = gang.spare(plays=1)
    spare.until(lambda r: r.supervisor_seen)
    assert spare.trainer is not None
    os.kill(spare.trainer.pid, signal.SIGTERM)
    assert spare.trainer.process.wait(10) == 0


def test_too_large_a_save_is_not_fetched_ahead_and_it_says_so(tmp_path: Path) -> None:
    gang = Gang(tmp_path, command=slow_command, mirror="never", max_restore_bytes=10)
    try:
        gang.begin()
        spare = gang.spare(plays=1)
        report = spare.until(lambda r: r.standby is not None and r.standby.why, seconds=90)
        assert report.standby is not None
        assert report.standby.name is None
        assert "maxRestoreBytes" in (report.standby.why or "")
    finally:
        gang.end()
