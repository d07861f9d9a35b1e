"""What nodes say against pods is read for those that are stuck, seldom, and fails no pass."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_operator.core.observed import ContainerView, PodView
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.troubles import PATIENCE_SECONDS, READ_SECONDS, Troubles, newest

NOW = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def pod(**fields: Any) -> PodView:
    known = {
        "name": "gpt-0-1-abcd",
        "uid": "u1",
        "resource_version": "1",
        "rank": 0,
        "made_in": 1,
        "created_at": NOW - 2 * PATIENCE_SECONDS,
        "node": "n1",
    }
    return PodView(**{**known, **fields})


def warning(at: str, message: str, *, reason: str = "FailedMount") -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": at, "type": "Warning"}


WARNINGS = [
    warning("2026-01-01T00:00:02Z", 'MountVolume.SetUp failed:\n secret "s3" not found'),
    warning("2026-01-01T00:00:01Z", "older"),
]


def test_the_newest_warning_counts_and_an_event_may_bear_its_time_in_three_ways() -> None:
    assert newest(WARNINGS) == 'FailedMount: MountVolume.SetUp failed: secret "s3" not found'
    late = {**warning("", "x"), "lastTimestamp": None, "eventTime": "2026-01-01T00:00:03.1Z"}
    assert newest([*WARNINGS, late]) == "FailedMount: x"
    series = {**warning("2020-01-01T00:00:00Z", "y")}
    series["series"] = {"lastObservedTime": "2027-01-01T00:00:00Z"}
    assert newest([*WARNINGS, series]) == "FailedMount: y"
    assert newest([]) is None


async def told(cluster: Any, clock: Clock, *pods: PodView) -> list[str | None]:
    troubles = Troubles(cluster, clock=clock)  # type: ignore[arg-type]
    return [p.trouble for p in await troubles.told(pods, namespace="ns")]


async def test_only_a_pod_that_is_stuck_on_its_node_is_asked_about(cluster: Any) -> None:
    cluster.warnings["u1"] = WARNINGS
    clock = Clock()
    assert await told(cluster, clock, pod()) == [newest(WARNINGS)]
    running = ContainerView(name="rtj-sidecar", running=True)
    for other in (
        pod(node=None),
        pod(phase="Running"),
        pod(sidecar=running),
        pod(deleting_since=NOW),
        pod(created_at=NOW - 1),
        pod(scheduled_since=NOW - 1),
    ):
        assert await told(cluster, clock, other) == [None]


async def test_it_is_read_seldom_and_kept_where_reading_fails(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.warnings["u1"] = WARNINGS
    clock = Clock()
    troubles = Troubles(cluster, clock=clock)  # type: ignore[arg-type]
    asked = 0
    real = cluster.list_pod_warnings

    async def counting(*, namespace: str, uid: str) -> list[Any]:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise ApiError(status=403, reason="Forbidden", message="events")
        return await real(namespace=namespace, uid=uid)

    monkeypatch.setattr(cluster, "list_pod_warnings", counting)
    for seconds, reads in ((0, 1), (READ_SECONDS - 1, 1), (2, 2)):
        clock.now += seconds
        [seen] = await troubles.told([pod()], namespace="ns")
        assert seen.trouble == newest(WARNINGS)
        assert asked == reads
