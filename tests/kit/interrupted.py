"""Every state in which a kill can leave a save, from a real whole one: the first files in the order
of their times, the next one half written, the rest not there, nor anything that came later than
what is cut, such as a second copy. Exact where files are written one after another; ranks that
write at once are one of their orders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rtj_sidecar.checkpoints.types import FoundSave


def interrupted(root: Path, save: FoundSave, *, into: Path) -> Iterator[str]:
    """Leaves each state in `into`, a copy of `root`, and says which it is. The file that is cut
    keeps its time."""
    files = sorted(save.files, key=lambda entry: (entry.mtime_ns, entry.path))
    for at, entry in enumerate(files):
        for half in (False, True):
            if half and entry.size < 2:
                continue
            shutil.rmtree(into, ignore_errors=True)
            shutil.copytree(root, into, symlinks=True)
            for later in files[at + half :]:
                (into / later.path).unlink()
            for other in into.rglob("*"):
                if other.is_file() and other.stat().st_mtime_ns > entry.mtime_ns:
                    other.unlink()
            if half:
                place = into / entry.path
                place.write_bytes(place.read_bytes()[: entry.size // 2])
                os.utime(place, ns=(entry.mtime_ns, entry.mtime_ns))
            yield f"{entry.path} {'half written' if half else 'not begun'}"
