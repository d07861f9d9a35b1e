"""Where each test of the tree is, by its name: for pages that name tests."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def files_of_tests() -> dict[str, list[str]]:
    """Name of a test -> its files, relative to the repository."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in DEFINED.findall(path.read_text(encoding="utf-8")):
            found[name].append(str(path.relative_to(ROOT)))
    return dict(found)


def as_code(name: str, *, where: dict[str, list[str]]) -> str:
    """In a table: the test and its file. Raises KeyError where there is no such test."""
    return f"`{name}` in `{where[name][0]}`"
