"""Scripts that save as people make them: the same pod goes on, and a new one does."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.orders import gone, prepared
from kit.podlike import PodLike, make_pod
from kit.trainers import habits
from kit.trainers.habits.work import expected
from rtj_api.rules.resume import Chosen, Facts, choose
from rtj_api.wire import Resume, SidecarPhase


def command(script: str) -> Callable[[Path], list[str]]:
    code = f"PYTHONPATH={Path(__file__).parents[2]}"
    place = Path(habits.__file__).with_name(f"{script}.py")
    options = ["--steps", "20", "--step-seconds", "0.1", "--stall-at", "12"]

    def words(path: Path) -> list[str]:
        return ["env", code, sys.executable, "-S", str(place), "--out", str(path), *options]

    return words


def started(pod: PodLike, attempt: int) -> Resume:
    report = prepared(pod, attempt)
    facts = Facts(
        run="ns/gpt",
        world_size=1,
        candidates=report.candidates,
        listed=bool(report.listed),
        pinned={0: report.pinned},
        shares={0: report.shares},
        urls={0: pod.url},
    )
    chosen = choose(facts)
    assert isinstance(chosen, Chosen), chosen
    gone(pod, attempt, chosen.resume)
    return chosen.resume


# Where the script finds its own newest save, no argument is given to it.
HABITS = {
    "in_place": ["--resume", "$(RTJ_RESUME_CHECKPOINT)"],
    "same_step": ["--resume", "$(RTJ_RESUME_CHECKPOINT)"],
    "best_and_last": [],
    "own_pointer": [],
}


@pytest.mark.parametrize("anew", [False, True], ids=["same-pod", "new-pod"])
@pytest.mark.parametrize("script", HABITS)
def test_it_goes_on_from_its_newest_save(
    script: str, anew: bool, pods: list[PodLike], tmp_path: Path
) -> None:
    def make(made_in: int) -> PodLike:
        pod = make_pod(tmp_path, store=tmp_path / "store", made_in=made_in, command=command(script))
        pod.config = pod.config.model_copy(update={"resume_args": HABITS[script]})
        pods.append(pod)
        return pod.start()

    pod = make(1)
    started(pod, 1)
    pod.until(lambda r: r.checkpoint.last_durable_step == 10, seconds=60)
    if anew:
        pod.end()
        pod = make(2)
    else:
        pod.kill_trainer(signal.SIGKILL)
        pod.until(lambda r: not r.settling and r.phase is SidecarPhase.DRAINED)
    assert started(pod, 2).step == 10
    report = pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    assert report.trainer.exit_code == 0, pod.output()
    assert report.checkpoint.last_durable_step == 20
    assert "START 10\n" in pod.output()
    assert expected(20) in pod.output()
    if script == "best_and_last":
        assert "BEST 5\n" in pod.output()
