"""The supervisor stands where the trainer's command expects it before the sidecar has begun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import rtj_sidecar.trainer.install
from kit.podlike import ENVIRONMENT
from rtj_api import contract
from rtj_api.wire import SuperviseConfig
from rtj_sidecar.trainer.install import install


def test_what_is_installed(tmp_path: Path) -> None:
    config = SuperviseConfig(path="/checkpoints", trainer_grace_seconds=7).dump_json()
    for _ in range(2):  # a sidecar that comes back does it again
        install(tmp_path, config=config)
    shim, run = tmp_path / "bin" / "supervise", tmp_path / "run"
    assert os.access(shim, os.X_OK)
    assert os.access(tmp_path / "bin" / "supervise.py", os.R_OK)
    assert json.loads((run / contract.FILE_SUPERVISE_CONFIG).read_text()) == json.loads(config)
    assert (run / contract.FILE_BEAT).exists()
    assert run.stat().st_mode & 0o777 == 0o777
    names = sorted(p.name for p in (tmp_path / "bin").iterdir())
    assert names == ["plain.sh", "supervise", "supervise.py", "supervisor"]
    modules = {path.name for path in (tmp_path / "bin" / "supervisor").iterdir()}
    source = Path(rtj_sidecar.trainer.install.__file__).parent / "supervisor"
    assert modules == {path.name for path in source.glob("*.py")}


def test_it_takes_no_library_that_is_slow_to_load() -> None:
    script = "import sys, rtj_sidecar.trainer.install as i; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pydantic", "aiohttp", "botocore", "awscrt", "asyncio"}
