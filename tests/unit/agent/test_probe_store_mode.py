"""The probe of a gang that nobody hears: the older save is agreed on, or the gang holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.ganglike import Gang
from kit.podlike import PodLike, trainer_command
from kit.supervised import wait_for
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, Probe, Report, SidecarPhase, ThroughStore

OLD = ThroughStore(ever_durable=True)
# Under load the saves before step 30 become durable, too.
ANY = ("10", "20", "30", "40")
CHECK = "import os, sys; sys.exit(5 if os.environ['RTJ_RESUME_STEP'] in sys.argv[1:] else 0)"


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    """Saves at 30 and 40, the second only once the first is durable; then its trainers fail."""
    (tmp_path / "leave").write_text("30")

    def command(path: Path) -> list[str]:
        leave = ["--limit", str(tmp_path / "leave"), "--crash-at", "40", "--every", "10"]
        return trainer_command(path, *leave, steps=60)

    made = Gang(tmp_path, command=command, mirror="always")
    yield made
    made.end()


def ended(pod: PodLike) -> Report:
    trainer = pod.trainer
    assert trainer is not None
    wait_for(lambda: trainer.process.poll() is not None, seconds=60, why=pod.log()[-3000:])
    return Report.model_validate_json(trainer.termination_log.read_text())


def fences(gang: Gang) -> list[dict]:
    places = sorted((gang.directory / "store" / "ns" / "gpt" / "fences").glob("*.json"))
    return [json.loads(place.read_text()) for place in places]


def test_the_older_save_is_agreed_on_and_two_alike_hold(gang: Gang, tmp_path: Path) -> None:
    gang.direct(Phase.GO, 1, through_store=ThroughStore())
    gang.ranks[0].until(lambda r: r.checkpoint.last_durable_step == 30, seconds=60)
    (tmp_path / "leave").write_text("60")
    for pod in gang.ranks:
        ended(pod)
    gang.ranks[0].until(lambda r: r.checkpoint.last_durable_step == 40)

    def again(attempt: int, *refused: str, forget: bool = False) -> None:
        probe = Probe(command=[sys.executable, "-c", CHECK, *refused], timeout_seconds=60)
        for pod in gang.ranks:
            if pod.trainer is None or pod.trainer.process.poll() is not None:
                pod.start_container()
        options = {"through_store": OLD, "probe": probe, "forget_probes": forget}
        gang.direct(Phase.GO, attempt, **options)

    again(2, *ANY)
    for attempt in (2, 3):
        words = ended(gang.ranks[0])
        assert words.problem is not None
        assert (words.problem.reason, words.problem.retrying) == (Reason.PROBE_FAILED, True)
        assert fences(gang)[attempt - 1]["choice"]["step"] == {2: 40, 3: 30}[attempt]
        again(attempt + 1, *ANY)
    words = ended(gang.ranks[0])
    assert words.problem is not None, words.trainer.tail
    # Told as an end that only a person can change: the operator holds the job.
    assert (words.problem.reason, words.problem.retrying) == (Reason.PROBE_FAILED, False)
    assert "failed alike on 2 saves" in words.problem.message
    assert not any("goAt" in fence for fence in fences(gang)[1:])

    again(5, "40", forget=True)
    ended(gang.ranks[0])
    again(6, "40")
    for pod in gang.ranks:
        pod.until(lambda r: r.attempt == 6 and r.phase is SidecarPhase.TRAINING, seconds=60)
    assert fences(gang)[-1]["choice"]["step"] == 30
