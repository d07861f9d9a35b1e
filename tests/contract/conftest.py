"""How the contract tier is dealt out to its workers: by file, the long files first.

Most of a contract test is waiting, for a store's patience, a scrape, a kubelet. Each worker has its
own API server.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONG = (
    "test_fault_matrix",
    "test_install",
    "test_exact",
    "test_example_trainers",
    "test_transfer_faults",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if all(HERE in item.path.parents for item in items):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    return LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG)
