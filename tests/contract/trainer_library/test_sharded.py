"""A sharded save that did not finish, was damaged or could not be written is never taken for one
that is good. One rank of `fully_shard`, which is as sharded as many; `test_ranks` has two."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from kit import exact, put_back
from kit.exact import needs_torch
from kit.reference import trainer_python
from rtj_sidecar.checkpoints.types import Status

pytestmark = [needs_torch, pytest.mark.timeout(900)]
WORDS = ("--sharded", "--every", 3)


def run(place: Path, *words: object) -> tuple[int, str, str]:
    (process,) = exact.gang(place, *WORDS, *words, world=1)
    return exact.ended(process)


def test_killed_and_with_its_newest_save_damaged_it_ends_with_the_same_weights(
    tmp_path: Path,
) -> None:
    """The save that it goes on from was written beside the steps, and one is written over."""
    whole, cut = tmp_path / "whole" / "saves", tmp_path / "cut" / "saves"
    for place in (whole, cut):
        place.parent.mkdir()
    code, alone, err = run(whole, "--steps", 14)
    assert code == 0, err
    code, _, err = run(cut, "--steps", 14, "--step-seconds", 0.2, "--die-at", 11)
    assert code == -signal.SIGKILL, err
    shard = cut / "rtj_step_0000000009" / "__0_0.distcp"
    torn = bytearray(shard.read_bytes())
    torn[len(torn) // 3] ^= 1
    shard.write_bytes(torn)
    begun = cut / "rtj_step_0000000012"
    begun.mkdir()
    (begun / "__0_0.distcp").write_bytes(b"PK\x03\x04 torn")
    code, out, err = run(cut, "--steps", 14)
    assert code == 0, err
    assert "rtj_step_0000000012 has no .metadata: it did not finish" in err
    assert "rtj_step_0000000009/__0_0.distcp at byte" in err
    assert "from 6 with" in out
    assert exact.last(out, "weights").split()[1] == exact.last(alone, "weights").split()[1]
    snapshot, verdicts, _ = put_back.look(cut)
    assert [save.step for save in snapshot.saves] == [9, 12, 14]
    assert {verdicts[save.identity].status for save in snapshot.saves} == {Status.VERIFIED}


def test_a_sharded_save_that_fails_is_told_and_is_not_the_end_of_training(tmp_path: Path) -> None:
    """The error of PyTorch's DCP is no Exception, and it comes in a thread."""
    place = tmp_path / "saves"
    meeting = tempfile.mktemp(prefix="rtj-meeting-", dir=tmp_path)
    words = ("--steps", 6, *WORDS, "--ranks-file", meeting)
    done = subprocess.run(
        [str(trainer_python()), str(exact.TOY), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=exact.SECONDS,
        env=exact.environment(RTJ_CHECKPOINT_DIR=str(place), RTJ_ATTEMPT="1"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000)),
    )
    assert done.returncode == 1, done.stderr
    assert "step 3 was NOT saved" in done.stderr
    assert "finished at step 6, NOT saved" in done.stderr
    assert json.loads((place / ".rtj_trainer" / "ended.json").read_text())["saved"] is False
    assert not list(place.glob("rtj_step_*/.metadata"))
