"""A gang whose reports nobody hears: it starts, fails and ends through the store alone.

The reports are looked at only to see when something has happened; no word of the tests' operator
rests on them, and a container's end is all that it learns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import toy_trainer
from kit.ganglike import HOLDER, Gang
from kit.podlike import PodLike, trainer_command
from kit.supervised import wait_for
from rtj_api.contract import MESSAGE_MAX_BYTES
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, Report, Resume, SidecarPhase, ThroughStore, TrainerState

NEW, OLD = ThroughStore(), ThroughStore(ever_durable=True)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path, command=lambda path: trainer_command(path, steps=250), mirror="always")
    yield made
    made.end()


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Gang]:
    """Every rank's trainer fails at step 40 unless it was resumed."""

    def command(path: Path) -> list[str]:
        return trainer_command(path, "--crash-at", "40", steps=250)

    made = Gang(tmp_path, command=command, mirror="always")
    yield made
    made.end()


def ended(pod: PodLike, *, seconds: float = 60) -> tuple[int, Report]:
    """How the trainer's container ended: its code and its last words."""
    trainer = pod.trainer
    assert trainer is not None
    wait_for(
        lambda: trainer.process.poll() is not None,
        seconds=seconds,
        why=f"the container's end\n{pod.log()[-4000:]}",
    )
    text = trainer.termination_log.read_text()
    assert len(text.encode()) <= MESSAGE_MAX_BYTES
    return trainer.process.returncode, Report.model_validate_json(text)


def fences(gang: Gang) -> list[dict]:
    places = sorted((gang.directory / "store" / "ns" / "gpt" / "fences").glob("*.json"))
    return [json.loads(place.read_text()) for place in places]


def until_trains(gang: Gang, attempt: int) -> None:
    for pod in gang.ranks:
        pod.until(
            lambda r: r.attempt == attempt and r.progress.first_step_at is not None, seconds=60
        )


def until_done(gang: Gang, attempt: int) -> None:
    """Every container ends with 0, and not before the fence says that all is done."""
    for pod in gang.ranks:
        code, words = ended(pod)
        assert code == 0
        assert (words.attempt, words.phase) == (attempt, SidecarPhase.DRAINED)
        assert f"RESULT 250 {toy_trainer.expected(250)}" in pod.output()
        assert fences(gang)[-1]["outcome"] == "complete"
        if pod is gang.ranks[0]:
            assert words.checkpoint.last_durable_step == 250


def test_it_starts_crashes_resumes_and_completes_through_the_store_alone(crashing: Gang) -> None:
    gang = crashing
    gang.direct(Phase.PREPARE, 1)
    gang.direct(Phase.GO, 1, through_store=NEW)
    for pod in gang.ranks:
        code, words = ended(pod)
        assert code == 1
        assert (words.attempt, words.trainer.exit_code) == (1, 1)
        # Two streams, each read by its own thread: their last lines have no order.
        assert any("crash at step 40, as asked" in line for line in words.trainer.tail[-2:])
        pod.start_container()  # the kubelet's part
    assert fences(gang)[0]["choice"]["scratch"] is True

    gang.direct(Phase.PREPARE, 2)
    gang.direct(Phase.GO, 2, through_store=NEW)
    until_trains(gang, 2)
    chosen = fences(gang)[1]["choice"]
    assert chosen["step"] == 40
    for pod in gang.ranks:
        assert "at step 40" in pod.output()
        assert pod.output().count("starting at step 0") == 1
    until_done(gang, 2)

    # Should nobody have heard of that, the next attempt says that this very job is done.
    for pod in gang.ranks:
        pod.end()
    gang.ranks = [gang.make(0, 3), gang.make(1, 3)]
    gang.direct(Phase.GO, 3, through_store=OLD)
    code, words = ended(gang.ranks[0])
    assert code == 1
    assert words.problem is not None
    assert words.problem.reason == Reason.RUN_ALREADY_COMPLETE
    assert words.completed_by == "cluster/job-1"
    assert gang.ranks[1].report().trainer.state is TrainerState.NONE


def test_a_new_pod_of_the_holder_goes_on_from_what_its_peer_or_the_store_has(
    crashing: Gang,
) -> None:
    gang = crashing
    gang.direct(Phase.GO, 1, through_store=NEW)
    for pod in gang.ranks:
        ended(pod)
    durable = gang.ranks[0].until(lambda r: r.checkpoint.last_durable_step == 40)
    gang.ranks[0].end()
    gang.ranks[0] = gang.make(0, 2)
    gang.ranks[1].start_container()
    gang.direct(Phase.GO, 2, through_store=OLD)
    until_trains(gang, 2)
    assert fences(gang)[1]["choice"]["name"] == durable.checkpoint.last_durable_name
    until_done(gang, 2)


def test_reports_that_vanish_in_the_middle_change_nothing_for_the_trainer(gang: Gang) -> None:
    gang.begin()
    until_trains(gang, 1)
    started = [pod.report().trainer.started_at for pod in gang.ranks]
    gang.direct(Phase.GO, 1, through_store=OLD)
    until_done(gang, 1)
    for pod, at in zip(gang.ranks, started, strict=True):
        assert ended(pod)[1].trainer.started_at == at, "one trainer an attempt"


@pytest.mark.parametrize("stage", [SidecarPhase.PREPARED, SidecarPhase.RESTORED])
def test_what_the_operator_chose_before_it_went_deaf_is_what_all_restore(
    gang: Gang, stage: SidecarPhase
) -> None:
    scratch = Resume(scratch=True)
    gang.direct(Phase.PREPARE, 1)
    gang.until(SidecarPhase.PREPARED, 1)
    if stage is SidecarPhase.RESTORED:
        gang.direct(Phase.RESTORE, 1, resume=scratch)
        gang.until(SidecarPhase.RESTORED, 1)
    gang.direct(Phase.GO, 1, resume=scratch, through_store=OLD)
    until_trains(gang, 1)
    (fence,) = fences(gang)
    assert fence["goAt"]
    assert fence["parent"]["scratch"] is True
    assert "choice" not in fence, "it was the operator's"


def test_an_end_from_before_is_passed_on_too(crashing: Gang) -> None:
    gang = crashing
    gang.begin()
    gang.ranks[0].until(lambda r: r.trainer.state is TrainerState.EXITED)
    gang.direct(Phase.GO, 1, through_store=OLD)
    code, words = ended(gang.ranks[0])
    assert (code, words.attempt, words.trainer.exit_code) == (1, 1, 1)
    gang.ranks[0].start_container()
    gang.ranks[0].until(lambda r: r.phase is SidecarPhase.DRAINED)
    trainer = gang.ranks[0].trainer
    assert trainer is not None
    assert trainer.process.poll() is None, "one end is told once"


def test_a_sidecar_killed_on_the_way_comes_back_to_the_same_agreement(gang: Gang) -> None:
    gang.direct(Phase.GO, 1, through_store=NEW)
    wait_for(lambda: (gang.directory / "store").exists() and fences(gang), seconds=60)
    for pod in gang.ranks:
        pod.kill_agent()
        pod.start_agent()
    until_trains(gang, 1)
    gang.ranks[1].kill_agent()
    gang.ranks[1].start_agent()
    assert len(fences(gang)) == 1
    until_done(gang, 1)


def test_without_a_choice_rank_0_says_why_and_nothing_trains(gang: Gang) -> None:
    gang.direct(Phase.GO, 1, through_store=OLD)  # a step was durable once, and the store is empty
    code, words = ended(gang.ranks[0])
    assert code == 1
    assert words.phase is SidecarPhase.FAILED
    assert words.problem is not None
    assert words.problem.reason == Reason.NO_VALID_CHECKPOINT
    assert all(pod.report().trainer.state is TrainerState.NONE for pod in gang.ranks)
    assert "goAt" not in fences(gang)[0]


def test_consent_to_step_0_comes_with_the_directive(gang: Gang) -> None:
    allowed = ThroughStore(ever_durable=True, allow_scratch=True)
    gang.direct(Phase.GO, 1, through_store=allowed)
    until_trains(gang, 1)
    assert fences(gang)[0]["choice"]["scratch"] is True
    assert gang.ranks[1].report().attempt == 1
    assert HOLDER in gang.ranks[0].url


def test_a_run_that_is_short_of_its_target_is_not_marked_complete(tmp_path: Path) -> None:
    gang = Gang(tmp_path, command=lambda path: trainer_command(path, steps=60), mirror="always")
    try:
        gang.direct(Phase.GO, 1, through_store=ThroughStore(target_step=61))
        code, words = ended(gang.ranks[0])
        assert code == 1
        assert words.problem is not None
        assert words.problem.reason == Reason.TARGET_STEP_NOT_REACHED
        assert "step 60, before success.targetStep 61" in words.problem.message
        assert fences(gang)[-1].get("outcome") != "complete"
    finally:
        gang.end()


def test_rank_0_alone_can_complete_the_run(tmp_path: Path) -> None:
    """Rank 1 goes on, and is ended by the operator once rank 0's container has told."""

    def command(path: Path) -> list[str]:
        script = '[ "$RANK" = 1 ] && exec sleep 300; exec "$@"'
        return ["sh", "-c", script, "sh", *trainer_command(path, steps=60)]

    gang = Gang(tmp_path, command=command, mirror="always")
    try:
        gang.direct(Phase.GO, 1, through_store=ThroughStore(rank_zero_decides=True))
        code, words = ended(gang.ranks[0])
        assert code == 0
        assert (words.phase, words.checkpoint.last_durable_step) == (SidecarPhase.DRAINED, 60)
        assert fences(gang)[-1]["outcome"] == "complete"
        assert gang.ranks[1].report().trainer.state is TrainerState.RUNNING
    finally:
        gang.end()
