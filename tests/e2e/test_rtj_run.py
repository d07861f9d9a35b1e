"""`rtj run` with real PyTorch: crashed and resumed, its weights equal those of a run left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit import toy_trainer
from kit.podlike import ENVIRONMENT
from kit.tools import cache

TORCH = Path(os.environ.get("RTJ_TRAINER_VENV") or cache() / "trainer-venv") / "bin" / "python"

pytestmark = pytest.mark.skipif(
    not TORCH.exists(), reason=f"needs an interpreter with torch: {TORCH} (or RTJ_TRAINER_VENV)"
)

SCRIPT = """
import argparse, hashlib, os, random
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--resume")
parser.add_argument("--die-at", type=int, nargs="*", default=[])
options = parser.parse_args()
os.makedirs(options.out, exist_ok=True)

torch.manual_seed(7)
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 64), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(64, 4)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
start = 0
if options.resume:
    saved = torch.load(options.resume, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    torch.set_rng_state(saved["rng"])
    start = saved["step"]
print("start at step", start, flush=True)
for step in range(start + 1, options.steps + 1):
    inputs = torch.randn(32, 16)
    loss = torch.nn.functional.cross_entropy(model(inputs), inputs[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"step {step} loss {loss.item():.6f}", flush=True)
    if step % 5 == 0:
        state = {
            "model": model.state_dict(), "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(), "rng": torch.get_rng_state(), "step": step,
        }
        torch.save(state, f"{options.out}/ckpt_{step}.pt")
    marker = f"{options.out}/died-{step}"
    if step in options.die_at and not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), 11)
digest = hashlib.sha256()
for tensor in model.state_dict().values():
    digest.update(tensor.numpy().tobytes())
print("WEIGHTS", digest.hexdigest(), flush=True)
"""


def weights(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith("WEIGHTS"))


def test_bitwise_equal_to_an_uninterrupted_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    alone = subprocess.run(
        [TORCH, script, "--out", tmp_path / "alone"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "rtj_cli", "run", "--poll", "0.1"),
            *("--store", f"file://{tmp_path}/store", "--path", tmp_path / "out"),
            *("--resume-arg", "--resume", "--resume-arg", "$(RTJ_RESUME_CHECKPOINT)"),
            *("--", TORCH, script, "--out", tmp_path / "out", "--die-at", "13", "27"),
        ],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("SIGSEGV") == 2
    starts = [line for line in done.stdout.splitlines() if line.startswith("start at")]
    assert starts == ["start at step 0", "start at step 10", "start at step 25"]
    assert weights(done.stdout) == weights(alone.stdout)


def test_real_torch_loads_what_the_toy_trainer_writes(tmp_path: Path) -> None:
    state = {"step": 5, "value": 9, "model": {"weight": b"x" * 10}, "optimizer": {"state": {}}}
    toy_trainer.save(tmp_path / "ckpt_5.pt", state)
    code = f"import torch; print(torch.load({str(tmp_path / 'ckpt_5.pt')!r}, weights_only=False))"
    done = subprocess.run([TORCH, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "'step': 5" in done.stdout
