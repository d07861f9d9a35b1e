"""The example trainers with the real PyTorch and Transformers, on this machine, without us.

What the e2e tests stand on: the DDP script is deterministic, killed and resumed or not; and the
Hugging Face Trainer resumes from a whole directory and crashes on a half-written one.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from kit import manifests, tools

DDP = manifests.ROOT / "examples" / "pytorch-ddp" / "train.py"
HF = manifests.ROOT / "examples" / "hf-trainer" / "train.py"
WITHIN_S = 120.0


@pytest.fixture(scope="session")
def python() -> str:
    try:
        return str(manifests.site_packages().parents[2] / "bin" / "python")
    except tools.ToolMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Gang:
    """Ranks of the DDP script, as torchrun would start them."""

    def __init__(self, python: str, out: Path, *arguments: str, logs: Path, world: int = 2) -> None:
        base = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        base["MASTER_PORT"] = str(free_port())
        command = [python, str(DDP), "--out", str(out), "--steps", "24", "--save-every", "4"]
        self.logs = [logs / f"rank{rank}.log" for rank in range(world)]
        self.ranks = []
        for rank, log in enumerate(self.logs):
            with log.open("w") as output:
                self.ranks.append(
                    subprocess.Popen(
                        [*command, *arguments],
                        env={**base, "RANK": str(rank)},
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )

    def text(self, rank: int) -> str:
        return self.logs[rank].read_text()

    def codes(self) -> list[int]:
        return [rank.wait(timeout=WITHIN_S) for rank in self.ranks]

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()


def wait_for_file(path: Path, process: subprocess.Popen, *, every: float = 0.02) -> None:
    end = time.monotonic() + WITHIN_S
    while not path.exists():
        assert process.poll() is None, "the trainer ended before it saved"
        assert time.monotonic() < end, f"no {path} in time"
        time.sleep(every)


def final_hash(text: str) -> str:
    return next(
        line.split()[-1] for line in text.splitlines() if line.startswith("final weights sha256")
    )


def test_killed_and_resumed_ddp_ends_bitwise_equal(python: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    first = Gang(python, whole / "out", logs=whole)
    assert first.codes() == [0, 0], first.text(0) + first.text(1)

    second = Gang(python, broken / "out", "--step-seconds", "0.05", logs=broken)
    try:
        wait_for_file(broken / "out" / "step_0000012.pt", second.ranks[0])
        second.ranks[1].kill()
        assert second.codes()[1] == -9
    finally:
        second.kill()
    # The newest may be torn by the kill: the one before it is whole.
    resume = broken / "out" / "step_0000008.pt"
    third = Gang(python, broken / "out", "--resume", str(resume), logs=broken)
    assert third.codes() == [0, 0], third.text(0) + third.text(1)

    assert "at step 8" in third.text(0)
    hashes = {final_hash(gang.text(rank)) for gang in (first, third) for rank in range(2)}
    assert len(hashes) == 1
    assert (whole / "out" / "final.pt").read_bytes() == (broken / "out" / "final.pt").read_bytes()


@pytest.mark.parametrize(("advice", "saves"), [("0\n", 24), ("86400\n", 1)])
def test_ddp_saves_as_often_as_it_is_told_and_all_ranks_at_the_same_steps(
    python: str, tmp_path: Path, advice: str, saves: int
) -> None:
    told = tmp_path / "interval"
    told.write_text(advice)
    gang = Gang(python, tmp_path / "out", "--interval-file", str(told), logs=tmp_path)
    assert gang.codes() == [0, 0], gang.text(0) + gang.text(1)
    assert len(list((tmp_path / "out").glob("step_*.pt"))) == saves


_TAKEN = """
import sys
sys.path.insert(0, sys.argv[1])
import train
for step in (0, 7, 39, 40):
    for world, batch, accumulation in ((3, 2, 2), (2, 2, 3), (1, 2, 6), (3, 2, 1)):
        taken = [
            int(sample)
            for rank in range(world)
            for sample in train.batch_indices(
                step, samples=480, batch=batch, rank=rank, world=world, seed=1,
                accumulation=accumulation,
            )[1].flatten()
        ]
        print(step, world, accumulation, *sorted(taken), sep=",")
"""


def test_a_step_takes_the_same_samples_however_many_ranks_share_them(python: str) -> None:
    done = _run([python, "-c", _TAKEN, str(DDP.parent)])
    assert done.returncode == 0, done.stderr
    rows = [tuple(map(int, line.split(","))) for line in done.stdout.splitlines()]
    for step in (0, 7, 39, 40):
        taken = {row[1:3]: row[3:] for row in rows if row[0] == step}
        kept = [taken[size] for size in ((3, 2), (2, 3), (1, 6))]
        assert kept[0] == kept[1] == kept[2]
        assert len(set(kept[0])) == 12
        # Without accumulation a step is another position in the data.
        assert taken[3, 1] != kept[0]
    first, later = (next(r[3:] for r in rows if r[:2] == (step, 3)) for step in (0, 7))
    assert not set(first) & set(later), "one epoch takes a sample once"


def test_a_save_of_three_ranks_goes_on_with_two_and_with_three_again(
    python: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    small = ("--batch", "2", "--samples", "480", "--accumulation")

    def run(world: int, *arguments: str) -> str:
        gang = Gang(python, out, *small, *arguments, logs=tmp_path, world=world)
        assert gang.codes() == [0] * world, gang.text(0)
        return gang.text(0)

    losses = _losses(run(3, "2", "--steps", "40"))
    newest = ("--resume", str(out / "step_0000040.pt"))
    less = run(2, "3", "--steps", "80", *newest)
    assert "rank 0 of 2 takes 3 batches of 2" in less
    newest = ("--resume", str(out / "step_0000080.pt"))
    losses |= _losses(less) | _losses(run(3, "2", "--steps", "100", *newest))
    assert sorted(losses) == list(range(1, 101))
    begun = sum(losses[step] for step in range(1, 11)) / 10
    for first in (41, 81):
        before = sum(losses[step] for step in range(first - 10, first)) / 10
        after = sum(losses[step] for step in range(first, first + 10)) / 10
        assert after < (before + begun) / 2, f"it began anew at step {first}"


def _losses(text: str) -> dict[int, float]:
    found = re.findall(r"^step (\d+)/\d+ epoch \d+ loss ([\d.]+)$", text, re.M)
    return {int(step): float(loss) for step, loss in found}


def test_one_step_less_ends_with_other_weights(python: str, tmp_path: Path) -> None:
    """The comparison above could not pass by accident."""
    hashes = []
    for steps in ("3", "4"):
        command = [python, str(DDP), "--out", str(tmp_path / steps), "--steps", steps]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=WITHIN_S, check=True, env=_alone()
        )
        hashes.append(final_hash(done.stdout))
    assert hashes[0] != hashes[1]


# Large enough that its optimizer's state is still being written when we look.
HF_SIZE = ("--hidden_size", "256", "--layers", "4")


def test_hugging_face_killed_in_a_save_crashes_on_it_and_resumes_without_it(
    python: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    steps = ("--max_steps", "12", "--save_steps", "4", *HF_SIZE)

    def train(to: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run([python, str(HF), "--output_dir", str(to), *steps, *arguments])

    whole = train(tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    wanted = final_hash(whole.stdout)

    torn = _killed_in_a_save([python, str(HF), "--output_dir", str(out), *steps], out=out)
    crashed = train(out, "--resume_from_checkpoint", "True")
    assert crashed.returncode != 0
    assert "trainer_state.json" in crashed.stderr, crashed.stderr

    shutil.rmtree(torn)
    resumed = train(out, "--resume_from_checkpoint", "True")
    assert resumed.returncode == 0, resumed.stderr
    assert "step 5/12" in resumed.stdout
    assert "step 4/12" not in resumed.stdout
    assert final_hash(resumed.stdout) == wanted

    by_path = train(out, "--resume_from_checkpoint", str(out / "checkpoint-8"))
    assert by_path.returncode == 0, by_path.stderr
    assert "step 9/12" in by_path.stdout
    assert final_hash(by_path.stdout) == wanted


def _killed_in_a_save(command: Sequence[str], *, out: Path) -> Path:
    """The half-written checkpoint-8 of a Trainer that got SIGKILL while it wrote it."""
    torn = out / "checkpoint-8"
    for _ in range(5):
        shutil.rmtree(out, ignore_errors=True)
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_alone()
        ) as process:
            wait_for_file(torn / "optimizer.pt", process, every=0.001)
            process.kill()
        if not (torn / "trainer_state.json").exists():
            return torn
    raise AssertionError("the save was over each time before the kill came")


def _alone() -> dict[str, str]:
    return {**os.environ, "MASTER_PORT": str(free_port())}


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**_alone(), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=WITHIN_S, check=False, env=environment
    )
