"""States of files (`alias_mark`), remembered in one small file below `<path>/.rtj`.

Written whole or not at all. Must never say what the marks are for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path


def write_marks(path: Path, marks: Collection[str]) -> None:
    """In place of what was there, durable when this returns. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(sorted(marks), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
