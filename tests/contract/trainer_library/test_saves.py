"""What the library saves is what the sidecar proves, and what is damaged is never taken."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from kit import exact, put_back
from kit.exact import needs_torch
from kit.podlike import ENVIRONMENT
from kit.reference import trainer_python
from rtj_sidecar.checkpoints.types import Status

pytestmark = [needs_torch, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of a run of 20 steps that nobody interrupted, and its weights."""
    place = tmp_path_factory.mktemp("whole") / "saves"
    code, out, err = exact.ended(exact.started(place, "--steps", 20, "--every", 5))
    assert code == 0, err
    return place, exact.last(out, "weights").split()[1]


def test_each_save_is_proved_by_the_sidecar_and_nothing_is_missing(
    whole: tuple[Path, str],
) -> None:
    snapshot, verdicts, _ = put_back.look(whole[0])
    assert [save.step for save in snapshot.saves] == [10, 15, 20], "the newest three stay"
    for save in snapshot.saves:
        assert save.layout == "torch"
        assert verdicts[save.identity].status is Status.VERIFIED
        assert save.full_state is True
        assert save.loss is not None
        has = save.facts["has"]
        assert has == {"optimizer": True, "scheduler": True, "rng": True, "loader": True}
    assert json.loads((whole[0] / ".rtj_trainer" / "ended.json").read_text())["ended"] == "finished"


def test_a_damaged_save_is_passed_over_and_the_end_is_the_same(
    whole: tuple[Path, str], tmp_path: Path
) -> None:
    place = tmp_path / "saves"
    code, _, err = exact.ended(exact.started(place, "--steps", 15, "--every", 5))
    assert code == 0, err
    newest = place / "rtj_step_0000000015.pt"
    torn = bytearray(newest.read_bytes())
    torn[len(torn) // 2] ^= 1
    newest.write_bytes(torn)
    code, out, err = exact.ended(exact.started(place, "--steps", 20, "--every", 5))
    assert code == 0, err
    assert "rtj_step_0000000015.pt is damaged" in err
    assert "from 10 with" in out
    assert exact.last(out, "weights").split()[1] == whole[1]
    assert "5 steps made twice are bit for bit as before" in err


def test_where_no_save_is_whole_nobody_begins_at_0(tmp_path: Path) -> None:
    place = tmp_path / "saves"
    place.mkdir()
    (place / "rtj_step_0000000005.pt").write_bytes(b"PK\x03\x04 torn")
    code, _, err = exact.ended(exact.started(place, "--steps", 5))
    assert code != 0
    assert "has saves, and none is whole" in err
    assert "allow_scratch=True" in err


@pytest.mark.parametrize("told", [{}, {"RTJ_ATTEMPT": "1"}], ids=["alone", "supervised"])
def test_a_save_that_fails_is_told_and_training_goes_on(
    tmp_path: Path, told: dict[str, str]
) -> None:
    """No file may be larger than 20 kB: as a full disk, but of this process alone. To a supervisor
    code 0 would mean that what it cannot find was done."""
    place = tmp_path / "saves"
    words = [str(trainer_python()), str(exact.TOY), "--steps", "10", "--every", "5"]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=exact.SECONDS,
        env=exact.environment(RTJ_CHECKPOINT_DIR=str(place), **told),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert done.returncode == (1 if told else 0), done.stderr
    assert "step 5 was NOT saved (OSError" in done.stderr
    assert "finished at step 10, NOT saved" in done.stderr
    assert ("after 10, 0 saves" in done.stdout) is (not told)
    said = json.loads((place / ".rtj_trainer" / "ended.json").read_text())
    assert (said["ended"], said["saved"]) == ("finished", False)
    assert [path.name for path in place.iterdir()] == [".rtj_trainer"], "nothing half written"


def test_under_rtj_run_a_killed_trainer_ends_with_the_same_weights(
    whole: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    library = str(exact.ROOT / "trainer_library")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "rtj_cli", "run", "--poll", "0.1"),
            *("--store", f"file://{tmp_path}/store", "--path", out),
            *("--", trainer_python(), exact.TOY, "--steps", "20", "--every", "5"),
            *("--die-at", "8", "17", "--step-seconds", "0.05"),
        ],
        capture_output=True,
        text=True,
        timeout=exact.SECONDS,
        env={
            **ENVIRONMENT,
            "PYTHONPATH": os.pathsep.join([library, ENVIRONMENT["PYTHONPATH"]]),
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    starts = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("from")]
    assert starts[0] == 0
    assert len(starts) == 3
    assert starts[1:] == sorted(starts[1:])
    assert set(starts[1:]) <= {5, 10, 15}
    assert exact.last(done.stdout, "weights").split()[1] == whole[1]
