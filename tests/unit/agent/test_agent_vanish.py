"""Saves that are overwritten faster than they settle: told, and from then on caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.orders import first_start
from kit.podlike import PodLike, make_pod, trainer_command
from rtj_api.reasons import Reason
from rtj_api.wire import SidecarPhase


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodLike]:
    def command(path: Path) -> list[str]:
        # Three saves a second in one file, without an end.
        return trainer_command(path, "--one-file", "--step-seconds", "0.03", steps=1_000_000)

    made = make_pod(tmp_path, store=tmp_path / "store", command=command)
    yield made.start()
    made.end()


def test_it_is_told_and_then_a_closed_file_waits_no_longer(pod: PodLike) -> None:
    first_start(pod)
    report = pod.until(lambda r: any(p.reason == Reason.SAVES_VANISH for p in r.degraded))
    told = next(p.message for p in report.degraded if p.reason == Reason.SAVES_VANISH)
    assert "last.pt" in told
    assert "Save less often" in told
    # It never rests for a second, so it can only have been caught in a hurry.
    first = pod.until(lambda r: r.checkpoint.last_durable_step, seconds=60)
    step = first.checkpoint.last_durable_step or 0
    later = pod.until(lambda r: (r.checkpoint.last_durable_step or 0) > step, seconds=60)
    assert later.phase is SidecarPhase.TRAINING
