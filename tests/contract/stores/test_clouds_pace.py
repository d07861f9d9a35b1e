"""The upload limit on the real servers of other clouds' stores, by a clock of the test's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.paced import Clock, pace
from kit.stored import MIB
from rtj_sidecar.stores.base import Store

Open = Callable[..., Store]


@pytest.mark.parametrize("size", [2 * MIB, 20 * MIB + 5])
def test_a_file_leaves_at_the_rate_and_arrives_whole(
    opened: Open, tmp_path: Path, size: int
) -> None:
    clock, source, back = Clock(), tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(size))
    store = opened(pace=pace(MIB, clock))
    began = clock.now
    sent = store.upload_file("model.pt", source)
    # Waits of several threads pass one after the other on this clock, so it shows more, not less.
    assert clock.now - began >= size / MIB - 0.25
    store.download("model.pt", back, size=size, sha256=sent.sha256)
    assert back.read_bytes() == source.read_bytes()
