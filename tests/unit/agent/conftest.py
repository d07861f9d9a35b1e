"""Pods that end with their test, whatever came of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.podlike import PodLike


@pytest.fixture
def pods() -> Iterator[list[PodLike]]:
    made: list[PodLike] = []
    yield made
    for pod in made:
        pod.end()
