"""A public training script that nobody here wrote runs as it is, and survives a kill.

The script is nanoGPT's `train.py`: it overwrites one `ckpt.pt` in place and resumes with
`--init_from=resume`. Nothing of it is kept in this tree; an opt-in test:

    git clone https://github.com/karpathy/nanoGPT /tmp/nanoGPT
    RTJ_PUBLIC_SCRIPT=/tmp/nanoGPT pytest tests/e2e/test_public_script.py
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from kit import manifests
from kit.kube import Kube
from kit.podlike import ENVIRONMENT
from kit.reference import trainer_python
from kit.rtj import Job
from kit.stack import Stack

CHECKOUT = os.environ.get("RTJ_PUBLIC_SCRIPT")
EVERY, LAST = 200, 5000

pytestmark = pytest.mark.skipif(
    not CHECKOUT,
    reason="opt-in: git clone https://github.com/karpathy/nanoGPT DIR, then RTJ_PUBLIC_SCRIPT=DIR",
)


@pytest.fixture
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with a small data set of our own in the form its script reads."""
    copy = tmp_path_factory.mktemp("public") / "nanoGPT"
    shutil.copytree(str(CHECKOUT), copy, ignore=shutil.ignore_patterns(".git", "assets"))
    words = "the quick brown fox jumps over the lazy dog while seven wizards brew extra hot kvass"
    text = "\n".join(f"{n} {words[n % 40 :]}" for n in range(2000))
    symbols = sorted(set(text))
    number = {symbol: index for index, symbol in enumerate(symbols)}
    ids = [number[symbol] for symbol in text]
    data, cut = copy / "data" / "shakespeare_char", len(ids) * 9 // 10
    for name, part in (("train.bin", ids[:cut]), ("val.bin", ids[cut:])):
        (data / name).write_bytes(struct.pack(f"<{len(part)}H", *part))
    meta = {"vocab_size": len(symbols), "stoi": number, "itos": dict(enumerate(symbols))}
    (data / "meta.pkl").write_bytes(pickle.dumps(meta))
    return copy


def arguments(out: str) -> list[str]:
    """The words after `python` that its README gives for a laptop, in a still smaller size."""
    return [
        *("train.py", "config/train_shakespeare_char.py", "--device=cpu", "--compile=False"),
        *("--eval_iters=2", f"--eval_interval={EVERY}", "--log_interval=1", "--block_size=32"),
        *("--batch_size=4", "--n_layer=2", "--n_head=2", "--n_embd=32", f"--max_iters={LAST}"),
        *("--always_save_checkpoint=True", f"--out_dir={out}"),
    ]


def evaluated(output: str) -> list[int]:
    """The iterations at which it evaluated, the first of each start included."""
    return [int(found) for found in re.findall(r"^step (\d+): train loss", output, re.MULTILINE)]


def test_under_rtj_run_a_killed_one_goes_on(checkout: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rtj_cli", "run", "--poll", "0.2"),
                *("--store", f"file://{tmp_path}/store", "--path", str(out)),
                *("--resume-arg=--init_from=resume", "--"),
                *(str(trainer_python()), *arguments(str(out))),
            ],
            cwd=checkout,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            committed = tmp_path / "store"
            deadline = time.monotonic() + 200
            while len(list(committed.rglob("manifests/*.json"))) < 1:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            durable = newest_step(committed)
            os.kill(trainer_of(out), signal.SIGKILL)
            assert process.wait(timeout=300) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
    text = log.read_text()
    assert text.count("SIGKILL") == 1
    resumed = [later for was, later in pairwise(evaluated(text)) if later <= was]
    assert len(resumed) == 1, evaluated(text)
    assert resumed[0] >= durable
    assert text.count("Resuming training from") == 1
    assert newest_step(committed) == LAST


def newest_step(store: Path) -> int:
    """The newest committed step, by the commit records."""
    records = [json.loads(path.read_text()) for path in store.rglob("manifests/*.json")]
    return max(record["step"] for record in records)


def trainer_of(out: Path) -> int:
    """The process that runs the script with that directory."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[1:2] == ["train.py"] and f"--out_dir={out}" in words:
                return int(entry.name)
    raise AssertionError("the script does not run")


@pytest.mark.timeout(400)
def test_in_a_pod_a_killed_one_goes_on(product: Stack, open_space: Kube, checkout: Path) -> None:
    space = open_space
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    made = manifests.job(
        "public",
        store=store,
        command=["python3", *arguments("/checkpoints")],
        replicas=1,
        framework="none",
        resume_args=("--init_from=resume",),
        root=True,
    )
    trainer = manifests.trainer_of(made)
    trainer["workingDir"] = "/nanogpt"
    trainer["env"].append({"name": "OMP_NUM_THREADS", "value": "1"})
    trainer["volumeMounts"].append({"name": "script", "mountPath": "/nanogpt", "readOnly": True})
    volume = {"name": "script", "hostPath": {"path": str(checkout), "type": "Directory"}}
    made["spec"]["template"]["spec"]["volumes"].append(volume)
    space.apply(made)
    job = Job(kube=space, name="public")
    durable = job.wait_durable(EVERY, within=240)["checkpoint"]["lastDurableStep"]
    job.kill_trainer(0)
    status = job.wait_status(
        "resumed", lambda s: s["restarts"] == 1 and s["phase"] == "Running", within=60
    )
    assert status["resume"]["step"] >= durable
    status = job.wait_phase("Succeeded", within=240)
    assert status["checkpoint"]["lastDurableStep"] == LAST
    assert status["restarts"] == 1
