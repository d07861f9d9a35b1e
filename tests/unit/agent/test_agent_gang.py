"""Two pods of one gang: one saves, both must be able to go on from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.ganglike import Gang
from kit.podlike import trainer_command
from rtj_api.wire import Phase, Report, Resume, SidecarPhase


def slow_command(path: Path) -> list[str]:
    return trainer_command(path, steps=300)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path, command=slow_command, mirror="always")
    yield made
    made.end()


def both_pinned(gang: Gang, *, beyond: int = 0) -> Resume:
    """The newest durable save that both ranks hold whole."""
    found: list[Resume] = []

    def seen(report: Report) -> bool:
        other = gang.ranks[1].report()
        for candidate in report.candidates:
            whole = candidate.name in report.pinned and candidate.name in other.pinned
            if whole and candidate.durable and (candidate.step or 0) > beyond:
                found.append(Resume(run="ns/gpt", name=candidate.name, step=candidate.step))
                return True
        return False

    gang.ranks[0].until(seen, seconds=90)
    return found[-1]


def test_a_crash_of_one_is_resumed_by_both_in_place(gang: Gang) -> None:
    gang.begin()
    both_pinned(gang)
    gang.ranks[1].kill_trainer()
    gang.ranks[1].until(lambda r: r.phase in (SidecarPhase.EXITED, SidecarPhase.DRAINED))
    best = both_pinned(gang)
    gang.direct(Phase.GO, 2, resume=best, fast=True)
    for pod in gang.ranks:
        report = pod.until(lambda r: r.attempt == 2 and r.progress.first_step_at)
        assert report.checkpoint.restored_bytes == 0
        assert f"at step {best.step}" in pod.output()
    gang.finish()


def test_a_new_pod_of_the_other_rank_is_restored_from_its_peer(gang: Gang) -> None:
    gang.begin()
    both_pinned(gang)
    gang.ranks[1].end()
    gang.ranks[1] = gang.make(1, 2)
    resume = gang.slow_path(2)
    report = gang.ranks[1].until(lambda r: r.progress.first_step_at)
    assert report.checkpoint.restored_bytes > 0
    log = gang.ranks[1].log()
    assert "attempt 2: restore" in log or "attempt 2: go" in log
    assert f"at step {resume.step}" in gang.ranks[1].output()
    assert gang.ranks[0].report().checkpoint.restored_bytes == 0
    gang.finish()


def test_ranks_on_one_host_find_the_holder_at_its_own_port(tmp_path: Path) -> None:
    """Rank 1 learns only from there what is shipped and what it is to mirror."""
    gang = Gang(tmp_path, one_host=True, command=slow_command, mirror="always")
    try:
        gang.begin()
        both_pinned(gang)
        gang.ranks[1].end()
        gang.ranks[1] = gang.make(1, 2)
        gang.slow_path(2)
        report = gang.ranks[1].until(lambda r: r.progress.first_step_at)
        assert report.checkpoint.restored_bytes > 0
        gang.finish()
    finally:
        gang.end()


def test_a_new_pod_of_the_holder_goes_on(gang: Gang) -> None:
    gang.begin()
    both_pinned(gang)
    gang.ranks[0].end()
    gang.ranks[0] = gang.make(0, 2)
    resume = gang.slow_path(2)
    assert resume.step is not None
    reports = gang.finish()
    assert reports[0].checkpoint.last_durable_step == gang.steps


def test_all_ranks_save_their_own_and_get_their_own_back(tmp_path: Path) -> None:
    def command(path: Path) -> list[str]:
        return trainer_command(path, "--ranks-that-save", "0,1", steps=150)

    gang = Gang(tmp_path, command=command)
    try:
        gang.begin()
        gang.ranks[0].until(lambda r: (r.checkpoint.last_durable_step or 0) >= 40)
        for pod in gang.ranks:
            pod.end()
        gang.ranks = [gang.make(0, 2), gang.make(1, 2)]
        resume = gang.slow_path(2)
        assert (resume.step or 0) >= 40
        gang.finish()
    finally:
        gang.end()


def test_on_a_shared_directory_rank_0_alone_looks_and_restores(tmp_path: Path) -> None:
    volume = tmp_path / "shared"

    def command(path: Path) -> list[str]:
        return trainer_command(path, steps=150)

    gang = Gang(tmp_path, command=command, volume=volume, shared_directory=True)
    try:
        gang.begin()
        gang.ranks[0].until(lambda r: (r.checkpoint.last_durable_step or 0) >= 30)
        for pod in gang.ranks:
            pod.end()
        for file in volume.glob("ckpt_*.pt"):
            file.write_bytes(b"lost")
        gang.ranks = [gang.make(0, 2), gang.make(1, 2)]
        resume = gang.slow_path(2)
        assert (resume.step or 0) >= 30
        for pod in gang.ranks:
            pod.until(lambda r: r.progress.first_step_at)
            assert f"at step {resume.step}" in pod.output()
        reports = gang.finish()
        assert reports[0].checkpoint.last_durable_step == 150
        assert reports[1].pinned == []
    finally:
        gang.end()
