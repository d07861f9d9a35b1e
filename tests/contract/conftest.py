"""How the contract tier is dealt out to its workers: by file, the long files first.

Most of a contract test is waiting, for a store's patience, a scrape, a kubelet. Each worker has its
own API server, so the tests of the API stay together for theirs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONG = ("test_fault_matrix", "test_install", "test_example_trainers", "test_transfer_faults")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        group = "api" if item.path.parent.name == "api" else item.path.stem
        item.add_marker(pytest.mark.xdist_group(group))
    if len(ours) == len(items):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    return LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG)
