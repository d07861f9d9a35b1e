"""What the probes answer where a permission is missing: not ready, in words, and no restart."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer
from rtj_operator.shell.health import WATCH_SILENT_SECONDS, Pulse, defects, health_app
from rtj_operator.shell.queue import KeyQueue

SAID = 'pods is forbidden: User "u" cannot watch resource "pods" in API group ""'


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def pulse(now: list[float]) -> Pulse:
    made = Pulse(resources=("pods",), clock=lambda: now[0])
    made.ready.set()
    return made


async def probed(pulse: Pulse, *, path: str) -> tuple[int, str]:
    app = health_app(pulse=pulse, queue=KeyQueue())
    async with TestClient(TestServer(app)) as client:
        answer = await client.get(path)
        return answer.status, await answer.text()


async def test_a_refused_watch_is_not_ready_and_not_dead(pulse: Pulse, now: list[float]) -> None:
    pulse.beat("pods")
    for at in range(0, 5000, 500):
        now[0] = float(at)
        pulse.refused("pods", SAID)
    assert (await probed(pulse, path="/healthz"))[0] == 200
    status, words = await probed(pulse, path="/readyz")
    assert (status, SAID in words) == (503, True)
    pulse.beat("pods")
    assert await probed(pulse, path="/readyz") == (200, "ok\n")


def test_a_watch_that_nobody_answers_is_dead(pulse: Pulse, now: list[float]) -> None:
    pulse.refused("pods", SAID)
    now[0] = WATCH_SILENT_SECONDS + 1
    assert defects(pulse=pulse, queue=KeyQueue()) == ["the watch of pods is silent for 661 s"]


async def test_what_another_must_mend_first_is_said(pulse: Pulse, now: list[float]) -> None:
    pulse.blocked = "cannot start yet: 403"
    now[0] = WATCH_SILENT_SECONDS * 10
    assert (await probed(pulse, path="/healthz"))[0] == 200
    assert await probed(pulse, path="/readyz") == (503, "cannot start yet: 403\n")
    pulse.blocked = None
    assert (await probed(pulse, path="/healthz"))[0] == 503
