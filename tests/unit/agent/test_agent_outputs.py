"""Success is told only when what the trainer left beside its checkpoints is in the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.orders import first_start
from kit.podlike import PodLike, make_pod
from kit.trainers import habits
from rtj_api.reasons import Reason
from rtj_api.wire import SidecarPhase


def command(path: Path) -> list[str]:
    script = Path(habits.__file__).with_name("final_model.py")
    code = f"PYTHONPATH={Path(__file__).parents[2]}"
    options = ["--out", str(path), "--steps", "10", "--step-seconds", "0.05"]
    return ["env", code, sys.executable, "-S", str(script), *options]


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodLike]:
    results = tmp_path / "results"
    (results / "plots").mkdir(parents=True)
    (results / "plots" / "loss.svg").write_text("<svg/>")
    made = make_pod(
        tmp_path,
        store=tmp_path / "store",
        command=command,
        outputs=[str(results), str(tmp_path / "none")],
    )
    yield made.start()
    made.end()


def test_drained_means_that_the_outputs_are_there(pod: PodLike, tmp_path: Path) -> None:
    outputs = tmp_path / "store/ns/gpt/outputs"
    outputs.mkdir(parents=True)
    (outputs / "f1").write_text("in the way: the store does not take them")
    first_start(pod)
    report = pod.until(
        lambda r: any(p.message.startswith("outputs:") for p in r.degraded), seconds=60
    )
    assert report.phase is SidecarPhase.DRAINING
    assert report.trainer.exit_code == 0
    assert Reason.NO_CHECKPOINT_YET not in {p.reason for p in report.degraded}
    (outputs / "f1").unlink()
    report = pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    assert [p.message for p in report.degraded if p.reason == Reason.OUTPUT_MISSING] == [
        f"rank 0: {tmp_path / 'none'} of spec.outputs holds no file: nothing of it was shipped. "
        "Correct spec.outputs, or see the trainer's log"
    ]
    plot = f"{tmp_path.as_posix().lstrip('/')}/results/plots/loss.svg"
    found = {p.relative_to(outputs / "f1").as_posix() for p in outputs.rglob("*") if p.is_file()}
    own = {"model.safetensors", "config.json", "report/curve.csv"}
    assert found == {*own, plot, ".rtj/0.json"}
    # A sidecar that comes after ships nothing again.
    (outputs / "f1/config.json").unlink()
    pod.kill_agent()
    pod.start_agent()
    pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    assert not (outputs / "f1/config.json").exists()
