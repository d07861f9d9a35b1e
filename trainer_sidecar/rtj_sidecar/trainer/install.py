"""Puts the supervisor where the trainer's command expects it: the first thing a sidecar does.

The standard library only, for the trainer's container waits for it, and everything else that the
sidecar imports takes ten times as long. Must never leave half a file where one may be executed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rtj_api import contract

_HERE = Path(__file__).parent
_PACKAGE = "supervisor"


def write_whole(path: Path, text: str, *, flush: bool = False) -> None:
    """Replace a file so that a reader sees the old or the new text. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        if flush:
            file.flush()
            os.fsync(file.fileno())
    os.chmod(temporary, 0o644)
    os.rename(temporary, path)


def beat(root: Path) -> None:
    """Tell the supervisor that somebody still looks after the saves."""
    path = root / "run" / contract.FILE_BEAT
    with open(path, "a", encoding="utf-8"):
        os.utime(path)


def install(root: Path, *, config: str) -> None:
    """`root` is what the trainer's container sees as /rtj; `config` JSON of a SuperviseConfig.

    The supervisor's user may be another than ours, so both directories are open to all. The
    executables are renamed into place, the one that is started last: the trainer's container may
    start at any moment. Raises OSError.
    """
    binaries, run = root / "bin", root / "run"
    for directory in (binaries, run):
        directory.mkdir(parents=True, exist_ok=True)
        os.chmod(directory, 0o777 if directory == run else 0o755)
    write_whole(run / contract.FILE_SUPERVISE_CONFIG, config)
    beat(root)
    package = binaries / _PACKAGE
    package.mkdir(exist_ok=True)
    os.chmod(package, 0o755)
    for module in sorted((_HERE / _PACKAGE).glob("*.py")):
        _copy(module, package / module.name)
    for name in ("plain.sh", "supervise.py"):
        _copy(_HERE / name, binaries / name)
    _copy(_HERE / "supervise.sh", binaries / "supervise")


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f"{target.name}.tmp")
    shutil.copyfile(source, temporary)
    os.chmod(temporary, 0o755)
    os.rename(temporary, target)
