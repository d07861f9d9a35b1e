"""The families of `tests/frameworks`: their environments, and their scripts as processes.

A family is `tests/frameworks/make_<family>.py` with `requirements/<family>.txt` beside it. Its
cases are the literal `CASES` in the script, read without running it. Its virtual environment lies
in the cache; one whose requirements begin with `# base: trainer` sees the packages of the
trainers' environment (torch) as its own, which saves gigabytes.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.tools import ToolMissing, cache

PLACE = Path(__file__).resolve().parents[1] / "frameworks"
_LIMIT_SECONDS = 420
_INSTALL_SECONDS = 1800


@dataclass(frozen=True)
class Case:
    """One way to save with one framework.

    `in_place`: the only copy is written over, so that a killed save may leave none. `layout`: what
    must recognise it. `options`: anything else that the script states about it.
    """

    family: str
    name: str
    layout: str
    in_place: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def script(self) -> Path:
        return PLACE / f"make_{self.family}.py"


def cases() -> tuple[Case, ...]:
    """Every case of every family, by name."""
    return tuple(case for script in sorted(PLACE.glob("make_*.py")) for case in _cases_in(script))


def _cases_in(script: Path) -> Iterator[Case]:
    family = script.stem.removeprefix("make_")
    for node in ast.parse(script.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CASES":
            for name, told in ast.literal_eval(node.value).items():
                known = {"layout": told.pop("layout"), "in_place": told.pop("in_place", False)}
                yield Case(family, name, options=told, **known)
            return
    raise ValueError(f"{script.name} has no literal CASES")


def python_of(family: str) -> Path:
    """The interpreter of the family's environment, made on the first call (minutes).

    Raises ToolMissing with what the installer said.
    """
    place = cache() / "frameworks" / family
    requirements = PLACE / "requirements" / f"{family}.txt"
    text = requirements.read_text(encoding="utf-8")
    base = cache() / "trainer-venv" if text.startswith("# base: trainer") else None
    if base is not None and not (base / "bin" / "python").exists():
        raise ToolMissing(f"{base} does not exist: run scripts/setup trainer")
    stamp = hashlib.sha256(text.encode() + _stamp_of(base)).hexdigest()
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = place / ".stamp"
        if not mark.exists() or mark.read_text() != stamp:
            shutil.rmtree(place, ignore_errors=True)
            _install(place, requirements, base)
            mark.write_text(stamp)
    return place / "bin" / "python"


def _stamp_of(base: Path | None) -> bytes:
    mark = base / ".stamp" if base is not None else None
    return mark.read_bytes() if mark is not None and mark.exists() else b""


def _install(place: Path, requirements: Path, base: Path | None) -> None:
    own = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    python = str(place / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    if base is not None:
        (place / own / "_trainer.pth").write_text(f"{base / own}\n")
    # --no-deps: the file names everything, and its pins are the releases that work together.
    command = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-deps"]
    command += ["--disable-pip-version-check", "-r", str(requirements)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
    )
    if done.returncode:
        raise ToolMissing(f"{requirements.name} cannot be installed here: {done.stderr[-800:]}")


@dataclass
class Told:
    """What a script said: digests by step (as announced before each save), steps that the
    framework called saved, and how long its saves took."""

    digests: dict[int, str] = field(default_factory=dict)
    saved: list[int] = field(default_factory=list)
    resumed: tuple[int | None, str] | None = None
    seconds: list[float] = field(default_factory=list)

    def hear(self, line: str) -> str | None:
        """The event in a line of the script's output, None for another line."""
        if not line.startswith('{"event"'):
            return None
        said = json.loads(line)
        if said["event"] == "saving":
            self.digests[said["step"]] = said["digest"]
        elif said["event"] == "saved":
            self.saved.append(said["step"])
        else:
            self.resumed = (said["step"], said["digest"])
        event: str = said["event"]
        return event


def save(case: Case, directory: Path) -> Told:
    """Three saves, and a clean end."""
    return _run(case, "save", directory)


def resume(case: Case, directory: Path) -> tuple[int | None, str]:
    """(step, digest of the tensors) that the framework resumed with, its own way; None: fresh."""
    told = _run(case, "resume", directory)
    if told.resumed is None:
        raise AssertionError(f"{case.family} resumed from {directory} and said nothing of it")
    return told.resumed


def train_and_kill(
    case: Case,
    directory: Path,
    *,
    luck: random.Random,
    on_saved: Callable[[int], None] | None = None,
    pause: float = 0.0,
) -> Told:
    """Trains for ever and is killed: after some whole saves, at a random moment of a save's length
    from the beginning of one, so that most kills land within it. `on_saved`: called with the step
    of each save, while the trainer goes on. `pause`: seconds from one save to the next."""
    told = Told()
    with _started(case, "train", directory, pause=pause) as process:
        last = luck.randint(2, 4)
        begun, began = 0, time.monotonic()
        for line in process.stdout or ():
            event = told.hear(line)
            if event == "saving":
                begun, began = begun + 1, time.monotonic()
                if begun > last:
                    typical = max(told.seconds, default=0.2)
                    time.sleep(luck.uniform(0, 1.1) * typical)
                    break
            elif event == "saved":
                told.seconds.append(time.monotonic() - began)
                if on_saved is not None:
                    on_saved(told.saved[-1])
        os.killpg(process.pid, signal.SIGKILL)
        for line in process.stdout or ():
            told.hear(line)
    if begun <= last:
        raise AssertionError(f"{case.family} ended by itself: {_log(directory)}")
    return told


def _run(case: Case, what: str, directory: Path) -> Told:
    told = Told()
    with _started(case, what, directory) as process:
        for line in process.stdout or ():
            told.hear(line)
        code = process.wait()
    if code:
        raise AssertionError(f"make_{case.family}.py {what} ended with {code}: {_log(directory)}")
    return told


class _started:
    """The script as a process group of its own, ended in any case."""

    def __init__(self, case: Case, what: str, directory: Path, *, pause: float = 0.0) -> None:
        directory.parent.mkdir(parents=True, exist_ok=True)
        self._log = open(_log_of(directory), "ab")  # noqa: SIM115
        environment = {
            **os.environ,
            "PYTHONPATH": "",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TMPDIR": str(_temporary(directory)),
            "SECONDS_BETWEEN_SAVES": str(pause),
        }
        self.process = subprocess.Popen(
            ["nice", "-n", "10", python_of(case.family), case.script, what, case.name, directory],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env=environment,
            cwd=_temporary(directory),
        )
        self._watchdog = threading.Timer(_LIMIT_SECONDS, self._end)

    def __enter__(self) -> subprocess.Popen[str]:
        self._watchdog.start()
        return self.process

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        self._end()
        self.process.wait()
        self._log.close()

    def _end(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _temporary(directory: Path) -> Path:
    place = directory.parent / f"{directory.name}-tmp"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _log_of(directory: Path) -> Path:
    return directory.parent / f"{directory.name}.log"


def _log(directory: Path) -> str:
    return _log_of(directory).read_text(errors="replace")[-3000:]
