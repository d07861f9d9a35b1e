"""Cases of which `make test` takes a few and `make test-long` the others (`tests/conftest.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def long(case: Any) -> Any:
    """A case of a parametrized test that is only for `make test-long`."""
    return pytest.param(case, marks=pytest.mark.long)


def seeds(few: int, *, many: int) -> list[Any]:
    """The numbers below `few`, and as long ones those below `many`."""
    return [*range(few), *map(long, range(few, many))]


def some(cases: Iterable[Any], *, is_long: Callable[[Any], bool]) -> list[Any]:
    """All cases in their order, those long that `is_long` says."""
    return [long(case) if is_long(case) else case for case in cases]
