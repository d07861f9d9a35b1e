"""Pods that write one directory: rank 0's sidecar alone touches it, and nobody writes too long."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import trainers
from kit.podlike import PodLike, make_pod
from kit.supervised import wait_for
from rtj_api.reasons import Reason
from rtj_api.wire import DirectoryOwner, Phase, Report, Resume, SidecarPhase
from rtj_cli.inspecting import of_store
from rtj_sidecar.directory_fence import fence_path, read_fence, write_fence

from devcluster.node import file_system

WITNESS = Path(trainers.__file__).parent / "witness.py"
HOLDER, OTHER, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"


class Gang:
    """Two ranks (or one) on one volume, without any other store unless one is given."""

    def __init__(
        self,
        directory: Path,
        *,
        store: Path | None = None,
        ranks: tuple[int, ...] = (0, 1),
        shared_directory: bool = True,
    ) -> None:
        self.store, self.is_shared = store, shared_directory
        self.directory, self.volume = directory, directory / "volume" / "ckpt"
        self.journal, self.end_file = directory / "journal", directory / "end"
        self.made: list[PodLike] = []
        zero = self.make(0, 1, HOLDER)
        self.port = zero.config.status_port
        self.ranks = [zero, *(self.make(rank, 1, OTHER) for rank in ranks[1:])]
        self.holder = HOLDER

    def command(self, path: Path) -> list[str]:
        words = [sys.executable, "-u", str(WITNESS), "--out", str(path)]
        words += ["--journal", str(self.journal), "--end-when", str(self.end_file)]
        return [*words, "--step-seconds", "0.2", "--save-every", "4"]

    def make(self, rank: int, made_in: int, address: str) -> PodLike:
        pod = make_pod(
            self.directory,
            store=self.store,
            rank=rank,
            made_in=made_in,
            volume=self.volume,
            command=self.command,
            port=self.made[0].config.status_port if self.made else None,
            address=address,
            environment={"RANK": str(rank)},
            keeps_in_directory=self.store is None,
            shared_directory=self.is_shared,
            fenced_directory=True,
        )
        # It finds its own newest file.
        pod.config = pod.config.model_copy(update={"resume_args": []})
        self.made.append(pod)
        return pod.start()

    def direct(self, phase: Phase, attempt: int, **options: object) -> None:
        for pod in self.ranks:
            pod.direct(
                phase,
                attempt,
                world_size=len(self.ranks),
                coordinator=self.holder,
                coordinator_port=self.port,
                **options,  # type: ignore[arg-type]
            )

    def until(self, phase: SidecarPhase, attempt: int) -> list[Report]:
        reports = [pod.until_phase(phase, attempt, seconds=120) for pod in self.ranks]
        assert {r.phase for r in reports} == {phase}, [r.problem for r in reports]
        return reports

    def start(self, attempt: int, resume: Resume) -> None:
        self.direct(Phase.RESTORE, attempt, resume=resume)
        self.until(SidecarPhase.RESTORED, attempt)
        self.direct(Phase.GO, attempt, resume=resume)

    def durable(self, *, beyond: int = 0) -> Resume:
        """The newest committed save."""

        def has(report: Report) -> bool:
            step = report.checkpoint.last_durable_step
            return step is not None and step > beyond

        view = self.ranks[0].until(has, seconds=120).checkpoint
        return Resume(run="ns/gpt", name=view.last_durable_name, step=view.last_durable_step)

    def lines(self, attempt: int, rank: int) -> list[tuple[float, str, int]]:
        path = self.journal / f"{attempt}-{rank}.txt"
        if not path.exists():
            return []
        words = [line.split() for line in path.read_text().splitlines()]
        return [(float(time), word, int(step)) for time, word, step in words]

    def end(self) -> None:
        for pod in self.made:
            pod.end()


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path)
    yield made
    made.end()


def begin(gang: Gang) -> None:
    gang.direct(Phase.PREPARE, 1)
    reports = gang.until(SidecarPhase.PREPARED, 1)
    assert reports[0].directory is not None
    assert reports[0].directory.followed is None
    assert reports[1].directory is None, "only rank 0's sidecar writes there"
    gang.start(1, Resume(scratch=True))


@pytest.mark.timeout(600)
def test_a_zombie_stops_itself_before_a_new_attempt_may_begin(gang: Gang) -> None:
    begin(gang)
    first = gang.durable()
    pins = {p.name for p in (gang.volume / ".rtj" / "pins").iterdir()}
    assert pins, "rank 0 pins what all ranks wrote together"
    assert gang.ranks[1].report().pinned == [], "the pins are rank 0's"
    kept = list((gang.volume / ".rtj" / "store").rglob("*.pt"))
    assert kept
    has_reflinks = file_system(gang.volume) in ("btrfs", "xfs")
    assert has_reflinks or all(p.stat().st_nlink > 1 for p in kept), "nothing is copied"

    rows = of_store(gang.volume.as_uri(), run_id=None, deep=True)
    assert {row.valid for row in rows if row.name == first.name} == {True}

    # Rank 1's pod is cut off: it hears of nothing. A new one takes its place.
    zombie = gang.ranks[1]
    gang.ranks[1] = gang.make(1, 2, THIRD)
    gang.direct(Phase.PREPARE, 2)
    reports = gang.until(SidecarPhase.PREPARED, 2)
    told = reports[0].directory
    assert told is not None
    assert told.attempt == 2
    report = zombie.until(lambda r: r.phase is SidecarPhase.FAILED, seconds=60)
    assert report.problem is not None
    assert report.problem.reason == Reason.FENCE_TAKEN
    assert "attempt 2" in report.problem.message
    zombie.until(lambda r: r.trainer.signal == 9, seconds=60)
    gang.ranks[0].until(lambda r: r.directory is not None and r.directory.settled, seconds=60)
    written = gang.lines(1, 1)
    gang.start(2, Resume(run="ns/gpt", name=first.name, step=first.step))
    wait_for(lambda: gang.lines(2, 1) and gang.lines(2, 0), seconds=60)
    # Its own newest file is the one that was chosen: the zombie's later ones went aside.
    assert [gang.lines(2, rank)[0][1:] for rank in (0, 1)] == [("START", first.step)] * 2
    gang.durable(beyond=first.step or 0)
    assert gang.lines(1, 1) == written, "the zombie wrote on"

    # It ends: the last save, of both ranks, is durable and the directory is released.
    gang.end_file.touch()
    for pod in gang.ranks:
        pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=120)
    last = min(gang.lines(2, rank)[-1][2] for rank in (0, 1))
    assert gang.durable().step == last
    gang.direct(Phase.RELEASE, 2)
    wait_for(lambda: (found := read_fence(gang.volume)) and found.released, seconds=60)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("silence", [Path.mkdir, os.mkfifo], ids=["fails", "never-returns"])
def test_a_fence_that_cannot_be_read_for_ten_seconds_stops_the_trainers(
    gang: Gang, silence: Callable[[Path], None]
) -> None:
    begin(gang)
    wait_for(lambda: gang.lines(1, 0) and gang.lines(1, 1), seconds=60)
    fence_path(gang.volume).unlink()
    silence(fence_path(gang.volume))  # of a pipe that nobody writes, even open does not return
    for pod in gang.ranks:
        report = pod.until(lambda r: r.phase is SidecarPhase.FAILED, seconds=60)
        assert report.problem is not None
        assert report.problem.reason == Reason.DIRECTORY_UNREACHABLE
        pod.until(lambda r: r.trainer.signal == 9, seconds=60)


def alone(directory: Path, prepare: Callable[[Path], None]) -> PodLike:
    volume = directory / "volume"
    volume.mkdir()
    prepare(volume)
    return make_pod(
        directory, store=None, volume=volume, keeps_in_directory=True, fenced_directory=True
    ).start()


def held_by(job: str, *, attempt: int) -> Callable[[Path], None]:
    return lambda volume: write_fence(
        volume,
        DirectoryOwner(
            cluster_uid="cluster", job_uid=job, job=f"ns/{job}", attempt=attempt, written_at=1.0
        ),
    )


def test_another_jobs_directory_is_asked_for_first(tmp_path: Path) -> None:
    pod = alone(tmp_path, held_by("job-0", attempt=7))
    try:
        pod.direct(Phase.PREPARE, 1)
        report = pod.until_phase(SidecarPhase.FAILED, 1)
        assert report.problem is not None
        assert report.problem.reason == Reason.RUN_IN_USE
        assert report.fence_owner == "cluster/job-0"
        found = read_fence(pod.path)
        assert found is not None
        assert found.job_uid == "job-0", "not touched"
        pod.direct(Phase.PREPARE, 2, may_claim=True)
        report = pod.until_phase(SidecarPhase.PREPARED, 2)
        assert report.directory is not None
        assert report.directory.followed == "cluster/job-0"
    finally:
        pod.end()


def test_a_zombie_that_prepares_late_takes_nothing_back(tmp_path: Path) -> None:
    pod = alone(tmp_path, held_by("job-1", attempt=5))
    try:
        pod.direct(Phase.PREPARE, 4)
        report = pod.until_phase(SidecarPhase.FAILED, 4)
        assert report.problem is not None
        assert report.problem.reason == Reason.FENCE_TAKEN
        found = read_fence(pod.path)
        assert found is not None
        assert found.attempt == 5
    finally:
        pod.end()


@pytest.mark.timeout(300)
def test_a_store_beside_the_shared_directory_gets_what_all_ranks_wrote(tmp_path: Path) -> None:
    gang = Gang(tmp_path, store=tmp_path / "store")
    try:
        begin(gang)
        first = gang.durable()
        rows = of_store((tmp_path / "store").as_uri(), run_id=None, deep=True)
        assert {row.valid for row in rows if row.name == first.name} == {True}
        kept = {p.name for p in (tmp_path / "store").rglob(f"*{first.step:07d}*.pt")}
        assert kept == {f"step_{first.step:07d}_rank{rank}.pt" for rank in (0, 1)}
        assert not (gang.volume / ".rtj" / "store").exists()
        gang.end_file.touch()
        for pod in gang.ranks:
            pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=120)
        assert gang.durable().step == min(gang.lines(1, rank)[-1][2] for rank in (0, 1))
    finally:
        gang.end()


@pytest.mark.timeout(300)
def test_one_pod_on_a_volume_of_all_nodes_is_fenced_from_the_pod_that_replaces_it(
    tmp_path: Path,
) -> None:
    gang = Gang(tmp_path, ranks=(0,), shared_directory=False)
    try:
        gang.direct(Phase.PREPARE, 1)
        gang.until(SidecarPhase.PREPARED, 1)
        gang.start(1, Resume(scratch=True))
        first = gang.durable()
        zombie = gang.ranks[0]
        gang.holder = THIRD
        gang.ranks[0] = gang.make(0, 2, THIRD)
        gang.direct(Phase.PREPARE, 2)
        gang.until(SidecarPhase.PREPARED, 2)
        zombie.until(lambda r: r.phase is SidecarPhase.FAILED, seconds=60)
        zombie.until(lambda r: r.trainer.signal == 9, seconds=60)
        # What it had finished before it was overtaken is this attempt's to resume from.
        settled = gang.ranks[0].until(
            lambda r: r.directory is not None and r.directory.settled, seconds=60
        )
        newest = settled.candidates[0]
        assert newest.durable
        assert (newest.step or 0) >= (first.step or 0)
        written = gang.lines(1, 0)
        resume = Resume(run="ns/gpt", name=newest.name, step=newest.step, durable=newest.durable)
        gang.start(2, resume)
        wait_for(lambda: gang.lines(2, 0), seconds=60)
        assert gang.lines(2, 0)[0][1:] == ("START", newest.step)
        gang.durable(beyond=newest.step or 0)
        assert gang.lines(1, 0) == written, "the zombie wrote on"
        gang.end_file.touch()
        gang.ranks[0].until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=120)
        assert gang.durable().step == gang.lines(2, 0)[-1][2]
    finally:
        gang.end()
