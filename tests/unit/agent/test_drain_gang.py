"""What is still on its way when a gang ends or is stopped: no rank says that it is drained before
its saves are durable, and whoever stops a gang in the middle of anything gets them durable."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.podlike import PodLike, free_port, make_pod, trainer_command
from kit.supervised import wait_for
from rtj_api.wire import Phase, Report, Resume, SidecarPhase

ADDRESSES = ("127.0.0.4", "127.0.0.5")
SCRATCH = Resume(scratch=True)
RUN = "ns/gpt"

Command = Callable[[Path], list[str]]


def saved_by(ranks: str, *, steps: int = 100_000, every: int = 25) -> Command:
    return lambda path: trainer_command(path, "--ranks-that-save", ranks, steps=steps, every=every)


class Two:
    """Two ranks and their store, which can be taken away whole or in part."""

    def __init__(self, directory: Path, command: Command) -> None:
        self.store = directory / "store"
        self.directory = directory
        (directory / "kept").mkdir()
        (directory / "nothing").write_text("a file where the directory should be")
        self.give_back()
        self.port = free_port()
        self.command = command
        self.made: list[PodLike] = []
        self.pods = [self.make(0, 1), self.make(1, 1)]

    def make(self, rank: int, made_in: int) -> PodLike:
        pod = make_pod(
            self.directory,
            store=self.store,
            rank=rank,
            made_in=made_in,
            command=self.command,
            port=self.port,
            address=ADDRESSES[rank],
            environment={"RANK": str(rank)},
            mirror="never",
        )
        self.made.append(pod)
        return pod.start()

    def direct(self, phase: Phase, attempt: int, **options: object) -> None:
        for pod in self.pods:
            pod.direct(phase, attempt, world_size=2, coordinator=ADDRESSES[0], **options)  # type: ignore[arg-type]

    def until(self, phase: SidecarPhase, attempt: int) -> list[Report]:
        reports = [pod.until_phase(phase, attempt, seconds=60) for pod in self.pods]
        assert [r.phase for r in reports] == [phase, phase], [r.problem for r in reports]
        return reports

    def train(self) -> None:
        self.direct(Phase.PREPARE, 1)
        self.until(SidecarPhase.PREPARED, 1)
        self.direct(Phase.RESTORE, 1, resume=SCRATCH)
        self.until(SidecarPhase.RESTORED, 1)
        self.direct(Phase.GO, 1, resume=SCRATCH)

    def manifests(self) -> dict[str, int]:
        """Durable saves: name -> step."""
        found = (self.store / RUN / "manifests").glob("*.json")
        records = [json.loads(path.read_text()) for path in found]
        return {record["name"]: record["step"] for record in records}

    def take_away(self) -> None:
        """The store does not answer. In one move: a store that is empty for a moment would be
        another store."""
        self._point_at("nothing")

    def give_back(self) -> None:
        self._point_at("kept")

    def _point_at(self, name: str) -> None:
        link = self.directory / "store.new"
        link.symlink_to(self.directory / name)
        link.rename(self.store)

    def end(self) -> None:
        for pod in self.made:
            pod.end()


@pytest.fixture
def two(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Two]:
    made = Two(tmp_path, request.param)
    yield made
    made.end()


def stays(fact: Callable[[], bool], *, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not fact():
            return False
        time.sleep(0.05)
    return True


def pending(pod: PodLike, *, at_least: int = 1) -> Report:
    return pod.until(lambda r: r.checkpoint.pending_saves >= at_least, seconds=60)


def all_durable(two: Two, *, attempt: int) -> None:
    """Both ranks drained, nothing pending, and the last save of all that save has its manifest."""
    reports = two.until(SidecarPhase.DRAINED, attempt)
    assert [r.checkpoint.pending_saves for r in reports] == [0, 0]
    saved = min(step for r in reports if (step := r.checkpoint.last_saved_step) is not None)
    assert saved in two.manifests().values()


@pytest.mark.parametrize("two", [saved_by("1", steps=25)], indirect=True)
def test_a_rank_is_drained_only_when_the_holder_has_committed_its_last_save(two: Two) -> None:
    two.direct(Phase.PREPARE, 1)
    two.until(SidecarPhase.PREPARED, 1)
    # From here on parts can be written and commits cannot.
    records = two.store / RUN / "manifests"
    records.write_text("in the way")
    two.direct(Phase.RESTORE, 1, resume=SCRATCH)
    two.until(SidecarPhase.RESTORED, 1)
    two.direct(Phase.GO, 1, resume=SCRATCH)
    two.pods[1].until(lambda r: r.trainer.exit_code == 0, seconds=60)
    parts = two.store / RUN / "parts"
    wait_for(lambda: list(parts.glob("*/*/1.json")), seconds=60, why="rank 1's part of its save")
    assert stays(lambda: two.pods[1].report().phase is not SidecarPhase.DRAINED, seconds=2)
    records.unlink()
    all_durable(two, attempt=1)
    assert list(two.manifests().values()) == [25]


@pytest.mark.parametrize("two", [saved_by("0"), saved_by("1")], indirect=True, ids=["0", "1"])
def test_stopped_in_a_prepare_without_store_all_is_durable_once_it_is_back(two: Two) -> None:
    saver = next(p for p in two.pods if str(p.config.rank) == ranks_that_save(two))
    two.train()
    two.pods[0].until(lambda r: r.checkpoint.last_durable_step, seconds=60)
    two.take_away()
    pending(saver)
    two.pods[1].kill_trainer()
    two.direct(Phase.PREPARE, 2)
    reports = two.until(SidecarPhase.PREPARED, 2)
    assert reports[0].listed is False
    two.direct(Phase.STOP, 2, grace=5)
    saver.until(lambda r: r.attempt == 2 and r.phase is SidecarPhase.DRAINING, seconds=60)
    two.give_back()
    all_durable(two, attempt=2)


def ranks_that_save(two: Two) -> str:
    command = two.pods[0].command
    return command[command.index("--ranks-that-save") + 1]


@pytest.mark.parametrize("two", [saved_by("0,1")], indirect=True)
def test_stopped_before_the_fast_path_could_claim_all_is_durable(two: Two) -> None:
    two.train()
    two.pods[0].until(lambda r: r.checkpoint.last_durable_step, seconds=60)
    newest = two.pods[0].report().checkpoint
    resume = Resume(run=RUN, name=newest.last_durable_name, step=newest.last_durable_step)
    two.take_away()
    two.pods[1].kill_trainer()
    two.direct(Phase.GO, 2, resume=resume, fast=True)
    for pod in two.pods:
        pod.until(lambda r: r.attempt == 2 and r.progress.first_step_at, seconds=60)
        began = pod.report().checkpoint.last_saved_at or 0
        pod.until(lambda r, t=began: (r.checkpoint.last_saved_at or 0) > t, seconds=60)
        pending(pod)
    two.direct(Phase.STOP, 2, grace=5)
    for pod in two.pods:
        pod.until(lambda r: r.attempt == 2 and r.trainer.asked_to_stop, seconds=60)
    two.give_back()
    all_durable(two, attempt=2)


@pytest.mark.parametrize("two", [saved_by("1")], indirect=True)
def test_a_new_holder_that_is_told_to_stop_makes_the_others_saves_durable(two: Two) -> None:
    two.train()
    two.pods[0].until(lambda r: r.checkpoint.last_durable_step, seconds=60)
    two.pods[0].end()
    pending(two.pods[1])
    two.pods[0] = two.make(0, 2)
    two.direct(Phase.STOP, 2, grace=5)
    all_durable(two, attempt=2)


@pytest.mark.parametrize("two", [saved_by("0,1")], indirect=True)
def test_a_save_whose_other_part_died_with_its_pod_does_not_keep_a_stopped_pod(two: Two) -> None:
    two.train()
    two.pods[0].until(lambda r: r.checkpoint.last_durable_step, seconds=60)
    # What is named from now on cannot be sent by rank 1, and then rank 1 is gone for good.
    two.take_away()
    pending(two.pods[0], at_least=2)
    two.pods[1].end()
    two.give_back()
    two.pods[0].direct(Phase.STOP, 2, world_size=2, coordinator=ADDRESSES[0], grace=5, replaced=[1])
    report = two.pods[0].until_phase(SidecarPhase.DRAINED, 2, seconds=60)
    assert report.phase is SidecarPhase.DRAINED
    assert report.checkpoint.pending_saves == 0


@pytest.mark.parametrize("two", [saved_by("0,1", every=2)], indirect=True)
def test_after_a_long_outage_every_rank_hears_what_became_of_each_of_its_saves(two: Two) -> None:
    """More saves are passed over at once than the holder keeps telling of."""
    two.train()
    two.pods[0].until(lambda r: r.checkpoint.last_durable_step, seconds=60)
    two.take_away()
    for pod in two.pods:
        pending(pod, at_least=80)
    two.direct(Phase.STOP, 1, grace=5)
    for pod in two.pods:
        pod.until(lambda r: r.phase is SidecarPhase.DRAINING, seconds=60)
    two.give_back()
    all_durable(two, attempt=1)
