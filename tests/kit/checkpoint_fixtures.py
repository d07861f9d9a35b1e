"""Real checkpoints for the tests, made once by real frameworks and kept in the cache.

The interpreter with torch, transformers and safetensors is `$RTJ_TRAINER_PYTHON`, default
`$RTJ_CACHE/trainer-venv/bin/python`. The project itself never imports any of these.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from kit.tools import ToolMissing, cache

_SCRIPT = Path(__file__).with_name("make_checkpoints.py")
_VERSIONS = (
    "import importlib.metadata as m;"
    "print([(n, m.version(n)) for n in ('torch', 'transformers', 'safetensors', 'accelerate')])"
)


def trainer_python() -> Path:
    """The interpreter with the frameworks. Raises ToolMissing with the remedy."""
    named = os.environ.get("RTJ_TRAINER_PYTHON")
    python = Path(named) if named else cache() / "trainer-venv" / "bin" / "python"
    if not python.exists():
        raise ToolMissing(
            f"{python} does not exist: make a virtual environment there with torch, transformers,"
            " accelerate, safetensors and numpy, or name one in RTJ_TRAINER_PYTHON"
        )
    return python


def real_checkpoints() -> Path:
    """The directory with all of them, read-only by convention: copy before you damage. The first
    call takes about a minute; later ones find it in the cache by script and versions."""
    return made_by(_SCRIPT, name="checkpoints")


def made_by(script: Path, *, name: str) -> Path:
    """The directory that a script wrote with the real libraries, from the cache if it is there."""
    python = trainer_python()
    versions = subprocess.run(
        [python, "-c", _VERSIONS], check=True, capture_output=True, timeout=120
    ).stdout
    key = hashlib.sha256(script.read_bytes() + versions).hexdigest()[:16]
    place = cache() / "fixtures" / f"{name}-{key}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            fresh = place.with_suffix(".tmp")
            shutil.rmtree(fresh, ignore_errors=True)
            with open(place.with_suffix(".log"), "w") as log:
                subprocess.run(
                    [python, script, fresh], check=True, stdout=log, stderr=log, timeout=280
                )
            fresh.rename(place)
    return place
