"""Two pods of one gang: one saves, both must be able to go on from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import toy_trainer
from kit.podlike import PodLike, free_port, make_pod, trainer_command
from rtj_api.rules.resume import Chosen, Facts, choose
from rtj_api.wire import Phase, Report, Resume, SidecarPhase

HOLDER, OTHER = "127.0.0.2", "127.0.0.3"


class Gang:
    """Rank 0 and rank 1 on loopback addresses of their own, as pods have them; or, on the host's
    network, at one address with ports of their own."""

    def __init__(self, directory: Path, *, one_host: bool = False, **options: object) -> None:
        self.directory = directory
        port = free_port()
        self.ports = (port, free_port() if one_host else port)
        self.addresses = (HOLDER, HOLDER if one_host else OTHER)
        self.options = options
        self.made: list[PodLike] = []
        self.ranks = [self.make(0, 1), self.make(1, 1)]

    def make(self, rank: int, made_in: int) -> PodLike:
        pod = make_pod(
            self.directory,
            store=self.directory / "store",
            rank=rank,
            made_in=made_in,
            port=self.ports[rank],
            address=self.addresses[rank],
            environment={"RANK": str(rank)},
            **self.options,  # type: ignore[arg-type]
        )
        self.made.append(pod)
        return pod.start()

    def direct(self, phase: Phase, attempt: int, **options: object) -> None:
        at = {"coordinator": HOLDER, "coordinator_port": self.ports[0]}
        for pod in self.ranks:
            pod.direct(phase, attempt, world_size=2, **at, **options)  # type: ignore[arg-type]

    def until(self, phase: SidecarPhase, attempt: int) -> list[Report]:
        reports = [pod.until_phase(phase, attempt, seconds=60) for pod in self.ranks]
        assert [r.phase for r in reports] == [phase, phase], [r.problem for r in reports]
        return reports

    def begin(self) -> None:
        self.direct(Phase.PREPARE, 1)
        self.until(SidecarPhase.PREPARED, 1)
        scratch = Resume(scratch=True)
        self.direct(Phase.RESTORE, 1, resume=scratch)
        self.until(SidecarPhase.RESTORED, 1)
        self.direct(Phase.GO, 1, resume=scratch)

    def slow_path(self, attempt: int) -> Resume:
        self.direct(Phase.PREPARE, attempt)
        reports = self.until(SidecarPhase.PREPARED, attempt)
        chosen = choose(
            Facts(
                run="ns/gpt",
                world_size=2,
                candidates=reports[0].candidates,
                listed=bool(reports[0].listed),
                pinned={r.rank: r.pinned for r in reports},
                urls={rank: pod.url for rank, pod in enumerate(self.ranks)},
                ever_durable=True,
            )
        )
        assert isinstance(chosen, Chosen), chosen
        resume = chosen.resume
        self.direct(Phase.RESTORE, attempt, resume=resume)
        self.until(SidecarPhase.RESTORED, attempt)
        self.direct(Phase.GO, attempt, resume=resume)
        return resume

    def finish(self) -> list[Report]:
        reports = [
            pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60) for pod in self.ranks
        ]
        steps = self.steps
        for pod in self.ranks:
            assert f"RESULT {steps} {toy_trainer.expected(steps)}" in pod.output()
        return reports

    @property
    def steps(self) -> int:
        return int(self.ranks[0].command[self.ranks[0].command.index("--steps") + 1])

    def end(self) -> None:
        for pod in self.made:
            pod.end()


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

    gang.ranks[0].until(seen, seconds=40)
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
