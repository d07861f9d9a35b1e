"""A trainer whose weights become NaN, with real PyTorch files: shipped, told of, never chosen."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import checkpoint_fixtures
from kit.podlike import PodLike, make_pod
from rtj_api.rules.resume import Chosen, Facts, choose
from rtj_api.wire import Phase, Resume, SidecarPhase

SCRIPT = Path(checkpoint_fixtures.__file__).with_name("make_numbers.py")
SCRATCH = Resume(scratch=True)
# Writes the saves of a real run, each when it is let.
TRAINER = """
import os, shutil, sys, time
from pathlib import Path
source, out, leave = map(Path, sys.argv[1:4])
out.mkdir(parents=True, exist_ok=True)
for step in range(1, 4):
    while step > int(leave.read_text() or 0):  # empty while it is written
        time.sleep(0.02)
    shutil.copyfile(source / f"ckpt_{step}.pt", out / ".tmp")
    os.rename(out / ".tmp", out / f"ckpt_{step}.pt")
    print(f"step {step}", flush=True)
time.sleep(600)
"""


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodLike]:
    source = checkpoint_fixtures.made_by(SCRIPT, name="numbers") / "f32"
    (tmp_path / "leave").write_text("1")

    def command(path: Path) -> list[str]:
        places = (str(source), str(path), str(tmp_path / "leave"))
        return [sys.executable, "-u", "-c", TRAINER, *places]

    keys = ["optimizer", "model.2.weight"]
    made = make_pod(tmp_path, store=tmp_path / "store", command=command, required_keys=keys)
    yield made.start()
    made.end()


def test_the_last_healthy_save_is_chosen(pod: PodLike, tmp_path: Path) -> None:
    pod.direct(Phase.PREPARE, 1)
    pod.until_phase(SidecarPhase.PREPARED, 1)
    pod.direct(Phase.RESTORE, 1, resume=SCRATCH)
    pod.until_phase(SidecarPhase.RESTORED, 1)
    pod.direct(Phase.GO, 1, resume=SCRATCH)
    for step in (1, 2, 3):
        (tmp_path / "leave").write_text(str(step))
        pod.until(lambda r, step=step: r.checkpoint.last_durable_step == step, seconds=60)
    report = pod.report()
    told = {(v.step, v.reason) for v in report.verdicts}
    assert told == {(2, "CheckpointNotFinite"), (3, "CheckpointNotFinite")}
    assert any(
        "NaN in model.2.weight, finite in the save before" in v.message for v in report.verdicts
    )

    # Known before anybody lists the store again: a restart in place must not begin from it.
    assert {c.step: c.invalid for c in report.candidates} == {
        1: None,
        2: "CheckpointNotFinite",
        3: "CheckpointNotFinite",
    }
    pod.kill_trainer()
    pod.direct(Phase.PREPARE, 2)
    report = pod.until_phase(SidecarPhase.PREPARED, 2)
    assert [(c.step, c.invalid) for c in report.candidates] == [
        (3, "CheckpointNotFinite"),
        (2, "CheckpointNotFinite"),
        (1, None),
    ]
    assert report.candidates[0].has["optimizer"]
    facts = Facts(
        run="ns/gpt",
        world_size=1,
        candidates=report.candidates,
        listed=True,
        pinned={0: report.pinned},
        urls={},
    )
    found = choose(facts)
    assert isinstance(found, Chosen)
    assert found.resume.step == 1
    assert "exp_avg" in found.passed_over[0].why
    index = json.loads((tmp_path / "store/ns/gpt/manifest.json").read_text())
    valid = {row["step"]: row["is_valid"] for row in index["checkpoints"]}
    assert valid == {1: True, 2: False, 3: False}
    assert "/checkpoints/f1-n1-s1/" in index["latest_valid_checkpoint"]
