"""What an uninterrupted run ends with: the yardstick for a run that was interrupted.

Runs the same example with the same real PyTorch directly on this machine. Must never share a
directory with the run under test.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from pathlib import Path

from kit import manifests, tools

WEIGHTS = re.compile(r"(?:final weights|weights|sha256)[^0-9a-f]*([0-9a-f]{64})")


def trainer_python() -> Path:
    venv = Path(os.environ.get("RTJ_TRAINER_VENV") or tools.cache() / "trainer-venv")
    return venv / "bin" / "python"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def final_weights(text: str) -> str:
    """The digest of the final weights in a trainer's output; ValueError where it has none."""
    found = WEIGHTS.findall(text)
    if not found:
        raise ValueError(f"no digest of final weights in: {text[-400:]}")
    return found[-1]


def uninterrupted_ddp(*, steps: int, world: int = 2, extra: tuple[str, ...] = ()) -> str:
    """Digest of the final weights of examples/pytorch-ddp after `steps`, never interrupted."""
    script = manifests.ROOT / "examples" / "pytorch-ddp" / "train.py"
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="rtj-reference-") as out:
        command = [str(trainer_python()), str(script), "--out", out, "--steps", str(steps), *extra]
        ranks = [
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "LOCAL_RANK": "0",
                    "WORLD_SIZE": str(world),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "PYTHONPATH": "",
                },
            )
            for rank in range(world)
        ]
        texts = [process.communicate(timeout=600)[0] for process in ranks]
    for process, text in zip(ranks, texts, strict=True):
        if process.returncode:
            raise RuntimeError(f"the uninterrupted run failed: {text[-800:]}")
    return final_weights(texts[0])
