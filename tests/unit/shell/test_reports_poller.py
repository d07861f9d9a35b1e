"""The long poll against a real HTTP server on loopback that plays the sidecar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from rtj_api import wire
from rtj_api.rules.news import is_news
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.reports import QUIET_LOOK_SECONDS, Endpoint, Reports, is_fault

KEY = JobKey("team", "gpt")


def a_report(**fields: Any) -> wire.Report:
    return wire.Report(
        **{
            "job_uid": "job-1",
            "pod_uid": "pod-1",
            "rank": 0,
            "boot_id": "boot-1",
            "sequence": 1,
            "sent_at": 0.0,
            **fields,
        }
    )


class Sidecar:
    def __init__(self) -> None:
        self.report = a_report()
        self.changed = asyncio.Condition()
        self.polls: list[dict[str, str]] = []
        self.port = 0
        self.closing = False
        self.waiting = False
        self.answer_anyway = False

    async def stop(self, runner: web.AppRunner) -> None:
        async with self.changed:
            self.closing = True
            self.changed.notify_all()
        await runner.cleanup()
        self.closing = False

    async def end_the_wait(self) -> None:
        """Answer the poll that waits with the same report, as a sidecar does after `wait`."""
        await until(lambda: self.waiting)
        async with self.changed:
            self.answer_anyway = True
            self.changed.notify_all()

    async def set(self, **fields: Any) -> None:
        async with self.changed:
            fields.setdefault("sequence", self.report.sequence + 1)
            self.report = self.report.model_copy(update=fields)
            self.changed.notify_all()

    async def handle(self, request: web.Request) -> web.Response:
        self.polls.append(dict(request.query))
        async with self.changed:
            self.waiting = True
            await self.changed.wait_for(
                lambda: (
                    self.closing
                    or self.answer_anyway
                    or request.query.get("since") != str(self.report.sequence)
                )
            )
            self.waiting = self.answer_anyway = False
            if self.closing:
                return web.Response(status=503)
            return web.Response(text=self.report.dump_json(), content_type="application/json")

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/status", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        return runner


@pytest.fixture
async def sidecar() -> AsyncIterator[Sidecar]:
    served = Sidecar()
    runner = await served.start()
    yield served
    await served.stop(runner)


class Woken:
    def __init__(self) -> None:
        self.calls: list[float] = []
        self.urgent: list[bool] = []

    def __call__(self, key: JobKey, *, after: float, urgent: bool) -> None:
        assert key == KEY
        self.calls.append(after)
        self.urgent.append(urgent)


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
async def reports(woken: Woken) -> AsyncIterator[Reports]:
    made = Reports(wake=woken)
    yield made
    await made.close()


def endpoint(port: int, *, pod_uid: str = "pod-1") -> Endpoint:
    return Endpoint(KEY, "job-1", pod_uid, "127.0.0.1", port)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def view(reports: Reports, pod_uid: str = "pod-1"):  # type: ignore[no-untyped-def]
    return reports.views(KEY)[pod_uid]


async def test_a_change_is_heard_and_wakes_the_job(sidecar, reports, woken) -> None:
    reports.follow(KEY, [endpoint(sidecar.port)])
    assert view(reports).report is None
    assert not view(reports).connected
    await until(lambda: view(reports).connected)
    assert woken.calls == [0]
    await sidecar.set(phase=wire.SidecarPhase.EXITED)
    await until(lambda: view(reports).report.phase == wire.SidecarPhase.EXITED)
    assert woken.calls == [0, 0]
    assert sidecar.polls[0] == {}
    assert sidecar.polls[1] == {"since": "1", "wait": "25"}


async def test_progress_alone_wakes_the_job_later(sidecar, reports, woken) -> None:
    reports.follow(KEY, [endpoint(sidecar.port)])
    await until(lambda: view(reports).connected)
    await sidecar.set(progress=wire.ProgressView(step=5))
    await until(lambda: view(reports).report.progress.step == 5)
    assert woken.calls == [0, QUIET_LOOK_SECONDS]


async def test_a_fault_is_urgent_and_other_news_is_not(sidecar, reports, woken) -> None:
    reports.follow(KEY, [endpoint(sidecar.port), endpoint(1, pod_uid="pod-2")])
    await until(lambda: view(reports).connected)
    await sidecar.set(pinned=["f00000001-n1-s5"])
    await until(lambda: view(reports).report.sequence == 2)
    await sidecar.set(trainer=wire.TrainerView(state=wire.TrainerState.EXITED, attempt=1))
    await until(lambda: view(reports).report.sequence == 3)
    assert woken.urgent == [False, False, True]


async def test_the_last_one_to_reach_a_stage_is_urgent(sidecar, reports, woken) -> None:
    """Two pods at one address, each with its own sidecar."""
    other = Sidecar()
    other.report = a_report(pod_uid="pod-2")
    runner = await other.start()
    reports.follow(KEY, [endpoint(sidecar.port), endpoint(other.port, pod_uid="pod-2")])
    await until(lambda: view(reports).connected and view(reports, "pod-2").connected)
    assert woken.urgent == [False, True], "both are heard and idle"
    prepared = {"attempt": 1, "seq": 1, "phase": wire.SidecarPhase.PREPARED}
    await other.set(**prepared)
    await until(lambda: view(reports, "pod-2").report.sequence == 2)
    await sidecar.set(**prepared)
    await until(lambda: view(reports).report.sequence == 2)
    await sidecar.set(pinned=["f00000001-n1-s5"])
    await until(lambda: view(reports).report.sequence == 3)
    assert woken.urgent == [False, True, False, True, False]
    await other.stop(runner)


async def test_of_many_pods_each_is_asked_to_hold_progress_back(sidecar, reports) -> None:
    silent = [endpoint(1, pod_uid=f"silent-{number}") for number in range(500)]
    reports.follow(KEY, [endpoint(sidecar.port), *silent])
    await until(lambda: len(sidecar.polls) == 2)
    asked = sidecar.polls[1]
    assert 0.7 * 2.5 <= float(asked.pop("quiet")) <= 1.3 * 2.51
    assert asked == {"since": "1", "wait": "25"}


async def test_received_at_stays_while_the_report_is_the_same(sidecar, reports) -> None:
    reports.follow(KEY, [endpoint(sidecar.port)])
    await until(lambda: view(reports).connected)
    first = view(reports)
    await sidecar.end_the_wait()
    await until(lambda: view(reports).last_contact > first.last_contact)
    assert view(reports).received_at == first.received_at
    await sidecar.set()
    await until(lambda: view(reports).report.sequence == 2)
    assert view(reports).received_at > first.received_at


async def test_a_report_of_another_pod_is_dropped(sidecar, reports, woken) -> None:
    reports.follow(KEY, [endpoint(sidecar.port, pod_uid="pod-2")])
    await until(lambda: len(sidecar.polls) >= 3)
    assert view(reports, "pod-2").report is None
    assert not view(reports, "pod-2").connected
    assert woken.calls == []


async def test_a_report_of_another_job_is_dropped(sidecar, reports) -> None:
    await sidecar.set(job_uid="job-2")
    reports.follow(KEY, [endpoint(sidecar.port)])
    await until(lambda: len(sidecar.polls) >= 3)
    assert view(reports).report is None


async def test_garbage_is_dropped(reports) -> None:
    asked = 0

    async def garbage(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text='{"sequence": "many"}')

    app = web.Application()
    app.router.add_get("/status", garbage)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    reports.follow(KEY, [endpoint(port)])
    await until(lambda: asked >= 3)
    assert view(reports).report is None
    await runner.cleanup()


async def test_a_lost_connection_is_told_once_and_healed(reports, woken) -> None:
    sidecar = Sidecar()
    runner = await sidecar.start()
    reports.follow(KEY, [endpoint(sidecar.port)])
    await until(lambda: view(reports).connected)
    await sidecar.stop(runner)
    await until(lambda: not view(reports).connected)
    assert view(reports).disconnected_since is not None
    assert view(reports).report is not None, "what was heard stays known"
    assert woken.calls == [0, 0]
    sidecar.report = sidecar.report.model_copy(update={"boot_id": "boot-2", "sequence": 1})
    runner = await sidecar.start()
    await until(lambda: view(reports).connected)
    assert view(reports).disconnected_since is None
    assert view(reports).report.boot_id == "boot-2"
    await sidecar.stop(runner)


async def test_pods_no_longer_named_are_no_longer_polled(sidecar, reports) -> None:
    reports.follow(KEY, [endpoint(sidecar.port)])
    await until(lambda: view(reports).connected)
    reports.follow(KEY, [])
    assert reports.views(KEY) == {}
    assert reports.followed == 0
    await sidecar.set(phase=wire.SidecarPhase.EXITED)
    assert reports.views(KEY) == {}


async def test_the_same_pod_keeps_its_poller_and_a_new_address_gets_a_new_one(
    sidecar, reports
) -> None:
    reports.follow(KEY, [endpoint(sidecar.port)])
    await until(lambda: view(reports).connected)
    reports.follow(KEY, [endpoint(sidecar.port)])
    assert view(reports).connected
    reports.follow(KEY, [endpoint(1)])
    assert not view(reports).connected


@pytest.mark.parametrize(
    ("fields", "news"),
    [
        ({}, False),
        ({"sequence": 2}, False),
        ({"sequence": 2, "progress": wire.ProgressView(step=7, loss=0.1)}, False),
        ({"sequence": 2, "progress": wire.ProgressView(first_step_at=9.0)}, True),
        ({"sequence": 2, "checkpoint": wire.CheckpointView(uploaded_bytes=7)}, False),
        ({"sequence": 2, "checkpoint": wire.CheckpointView(last_durable_step=7)}, True),
        ({"sequence": 2, "trainer": wire.TrainerView(tail=["a line"])}, False),
        ({"sequence": 2, "trainer": wire.TrainerView(state=wire.TrainerState.EXITED)}, True),
        ({"sequence": 2, "pinned": ["f00000001-n1-s5"]}, True),
        ({"sequence": 2, "terminating": True}, True),
        ({"boot_id": "boot-2", "phase": wire.SidecarPhase.IDLE, "seq": 1}, True),
    ],
)
def test_what_is_news(fields: dict[str, Any], news: bool) -> None:
    assert is_news(a_report(), a_report(**fields)) is news


EXITED = wire.TrainerView(state=wire.TrainerState.EXITED, attempt=1)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ({}, {}, False),
        ({}, {"trainer": EXITED}, True),
        ({"trainer": EXITED}, {"trainer": EXITED, "pinned": ["x"]}, False),
        ({"trainer": EXITED}, {"trainer": EXITED.model_copy(update={"attempt": 2})}, True),
        ({}, {"phase": wire.SidecarPhase.FAILED}, True),
        ({"phase": wire.SidecarPhase.FAILED}, {"phase": wire.SidecarPhase.FAILED}, False),
    ],
)
def test_what_is_a_fault(before: dict[str, Any], after: dict[str, Any], fault: bool) -> None:
    assert is_fault(a_report(**before), a_report(**after)) is fault
