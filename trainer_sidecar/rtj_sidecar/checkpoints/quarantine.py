"""What restores have set aside, and giving its room back when the disk gets short.

The only place that deletes what the trainer wrote, and only what a restore has set aside already:
torn saves, and saves beyond the one that a run went back to. Oldest attempts first.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rtj_api.contract import HIDDEN_DIR


def quarantine_root(root: Path) -> Path:
    return root / HIDDEN_DIR / "quarantine"


def quarantine_dir(root: Path, attempt: int) -> Path:
    """Where the restore of that attempt sets things aside, under their own relative names."""
    return quarantine_root(root) / str(attempt)


def free_quarantine(root: Path, *, wanted: int) -> int:
    """Removes whole attempts, oldest first, until `wanted` bytes are free that were not; returns
    the bytes that were (fewer where there is no more). A file that is pinned as well frees none."""
    try:
        names = os.listdir(quarantine_root(root))
    except FileNotFoundError:
        return 0
    freed = 0
    for attempt in sorted(int(name) for name in names if name.isdecimal()):
        if freed >= wanted:
            break
        place = quarantine_dir(root, attempt)
        held = _bytes_held(place)
        shutil.rmtree(place, ignore_errors=True)
        freed += held - (_bytes_held(place) if place.exists() else 0)
    return freed


def _bytes_held(directory: Path) -> int:
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except OSError:
                continue
            total += status.st_blocks * 512 if status.st_nlink == 1 else 0
    return total
