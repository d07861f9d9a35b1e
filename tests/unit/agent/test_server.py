"""The sidecar's HTTP by a real client on a real port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.wire import CheckpointView, ProgressView, Report, SidecarPhase, Verdict
from rtj_sidecar.messages import PeerFile, PeerSave, Seen, Ships
from rtj_sidecar.metrics import SidecarCollector, rendered
from rtj_sidecar.report import Reporter
from rtj_sidecar.runs.records import SaveFacts
from rtj_sidecar.server import PinnedFile, make_app
from rtj_sidecar.traffic import Traffic


@dataclass
class FakePeers:
    files: dict[str, dict[str, PinnedFile]]
    well: bool = True
    got: list[Seen] = field(default_factory=list)

    def is_well(self) -> bool:
        return self.well

    async def ships(self, *, since: int | None, wait: float) -> Ships:
        return Ships(fence=4, version=9)

    async def heard(self, seen: Seen) -> None:
        if seen.job_uid != "j":
            raise ValueError("not of this gang")
        self.got.append(seen)

    async def describe(self, name: str) -> PeerSave | None:
        files = self.files.get(name)
        if files is None:
            return None
        listed = [PeerFile(path=p, size=f.size, sha256="0" * 64) for p, f in files.items()]
        return PeerSave(name=name, facts=SaveFacts(root_key="a", layout="torch"), files=listed)

    def pinned_file(self, name: str, path: str) -> PinnedFile | None:
        return self.files.get(name, {}).get(path)


@dataclass
class Site:
    reporter: Reporter
    peers: FakePeers
    http: ClientSession


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    content = tmp_path / "bytes"
    content.write_bytes(bytes(range(100)))
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    peers = FakePeers(
        {
            "f00000001-n1-s5": {
                "a/model.pt": PinnedFile(content, 100),
                "link": PinnedFile(tmp_path / "link", 6),
            }
        }
    )
    reporter = Reporter(job_uid="j", pod_uid="p", rank=1)
    collector = SidecarCollector("ns", "job", lambda: reporter.current, lambda: Traffic(uploaded=7))
    app = make_app(
        reporter=reporter,
        peers=peers,
        metrics=lambda accept: rendered(collector, accept=accept),
    )
    server = TestServer(app)
    await server.start_server()
    async with ClientSession(server.make_url("/"), headers={contract.HEADER_JOB: "j"}) as http:
        yield Site(reporter, peers, http)
    await server.close()


async def get_report(site: Site, query: str = "") -> Report:
    async with site.http.get("/status" + query) as answer:
        assert answer.status == 200
        return Report.model_validate_json(await answer.read())


async def test_status_answers_at_once_without_since_and_with_another(site: Site) -> None:
    report = await get_report(site)
    assert (report.job_uid, report.rank, report.phase) == ("j", 1, SidecarPhase.IDLE)
    assert (await get_report(site, "?since=1&wait=60")).sequence == report.sequence


async def test_a_change_ends_the_long_poll_at_once(site: Site) -> None:
    before = await get_report(site)
    waiting = asyncio.create_task(get_report(site, f"?since={before.sequence}&wait=60"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    site.reporter.set(phase=SidecarPhase.EXITED)
    after = await asyncio.wait_for(waiting, 30)
    assert after.phase is SidecarPhase.EXITED
    assert after.sequence > before.sequence
    assert after.boot_id == before.boot_id


async def test_progress_is_held_back_as_asked_and_news_is_not(site: Site) -> None:
    site.reporter.set(phase=SidecarPhase.TRAINING)
    before = await get_report(site)
    query = f"?since={before.sequence}&wait=60&quiet=50"
    waiting = asyncio.create_task(get_report(site, query))
    site.reporter.set(progress=ProgressView(step=1))
    await asyncio.sleep(1.2)  # longer than progress is held back anyway
    assert site.reporter.current.sequence > before.sequence
    assert not waiting.done()
    site.reporter.set(checkpoint=CheckpointView(last_durable_step=1))
    after = await asyncio.wait_for(waiting, 30)
    assert (after.progress.step, after.checkpoint.last_durable_step) == (1, 1)
    site.reporter.set(progress=ProgressView(step=2))
    query = f"?since={after.sequence}&wait=60&quiet=0.1"
    assert (await asyncio.wait_for(get_report(site, query), 30)).progress.step == 2


async def test_another_processes_reader_is_told_at_once(site: Site) -> None:
    now = await get_report(site)
    query = f"?since={now.sequence + 1000}&wait=60&quiet=50"
    assert (await asyncio.wait_for(get_report(site, query), 30)).sequence == now.sequence


async def test_nothing_new_is_told_to_nobody_and_the_wait_ends(site: Site) -> None:
    before = await get_report(site)
    waiting = asyncio.create_task(get_report(site, f"?since={before.sequence}&wait=0.3"))
    await asyncio.sleep(0.05)
    site.reporter.set(phase=SidecarPhase.IDLE)
    assert (await asyncio.wait_for(waiting, 30)).sequence == before.sequence


async def test_progress_alone_is_told_at_most_once_a_second(site: Site) -> None:
    before = (await get_report(site)).sequence
    for step in range(200):
        site.reporter.set(progress=ProgressView(step=step))
    assert site.reporter.current.sequence <= before + 1
    site.reporter.set(phase=SidecarPhase.TRAINING)
    assert site.reporter.current.progress.step == 199
    first = site.reporter.current.sequence
    site.reporter.set(checkpoint=CheckpointView(uploaded_bytes=5))
    later = await asyncio.wait_for(get_report(site, f"?since={first}&wait=60"), 30)
    assert later.checkpoint.uploaded_bytes == 5


async def test_a_verdict_is_told_once(site: Site) -> None:
    verdict = Verdict(name="x", reason="CheckpointTorn", message="m", at=1.0)
    site.reporter.add_verdict(verdict)
    site.reporter.add_verdict(verdict.model_copy(update={"at": 2.0}))
    assert len(site.reporter.current.verdicts) == 1


async def test_what_is_degraded_keeps_its_beginning_and_heals(site: Site) -> None:
    site.reporter.degrade("store", Reason.STORE_UNREACHABLE, "one")
    since = site.reporter.current.degraded[0].since
    site.reporter.degrade("store", Reason.STORE_UNREACHABLE, "two")
    assert site.reporter.current.degraded[0].since == since
    assert site.reporter.current.degraded[0].message == "two"
    site.reporter.heal("store")
    assert site.reporter.current.degraded == []


@pytest.mark.parametrize("query", ["?since=x", "?wait=soon"])
async def test_bad_queries_are_named(site: Site, query: str) -> None:
    async with site.http.get("/status" + query) as answer:
        assert answer.status == 400
        assert query[1:5] in (await answer.text()) or "since" in (await answer.text())


async def test_files_come_whole_and_by_range(site: Site) -> None:
    url = "/saves/f00000001-n1-s5/files/a/model.pt"
    async with site.http.get(url) as answer:
        assert await answer.read() == bytes(range(100))
    async with site.http.get(url, headers={"Range": "bytes=10-19"}) as answer:
        assert answer.status == 206
        assert await answer.read() == bytes(range(10, 20))
    async with site.http.get("/saves/f00000001-n1-s5") as answer:
        assert {f["path"] for f in (await answer.json())["files"]} == {"a/model.pt", "link"}


@pytest.mark.parametrize(
    "path",
    [
        "/saves/other",
        "/saves/other/files/a",
        "/saves/f00000001-n1-s5/files/b",
        "/saves/f00000001-n1-s5/files/link",
        "/saves/f00000001-n1-s5/files/..%2f..%2fetc%2fpasswd",
        "/saves/f00000001-n1-s5/files/%2fetc%2fpasswd",
        "/saves/..%2fx/files/a",
    ],
)
async def test_nothing_but_pinned_plain_files(site: Site, path: str) -> None:
    from yarl import URL

    base = str(site.http._base_url).rstrip("/")
    async with site.http.get(URL(base + path, encoded=True)) as answer:
        assert answer.status == 404


@pytest.mark.parametrize("says", [{}, {contract.HEADER_JOB: "k"}, {contract.HEADER_JOB: "\u00e9"}])
async def test_a_stranger_gets_no_report_and_no_save_and_tells_the_holder_nothing(
    site: Site, says: dict[str, str]
) -> None:
    """Only who may read the job or its pods knows its UID."""
    body = Seen(job_uid="j", rank=1, attempt=3).dump_json()
    save = "/saves/f00000001-n1-s5"
    async with ClientSession(site.http._base_url, headers=says) as stranger:
        for path in ("/status", "/ships", save, f"{save}/files/a/model.pt", "/status?job=k"):
            async with stranger.get(path) as answer:
                assert answer.status == 403, path
                assert "metadata.uid" in await answer.text()
        async with stranger.post("/seen", data=body) as answer:
            assert answer.status == 403
        for path in ("/healthz", "/metrics"):
            async with stranger.get(path) as answer:
                assert answer.status == 200
    assert site.peers.got == []


async def test_kubectl_says_the_uid_in_the_address(site: Site) -> None:
    """The API server's proxy passes no header of it on."""
    async with ClientSession(site.http._base_url) as kubectl:
        async with kubectl.get("/status?job=j") as answer:
            assert answer.status == 200


async def test_seen_is_checked(site: Site) -> None:
    good = Seen(job_uid="j", rank=1, attempt=3).dump_json()
    for body, status in ((good, 204), (good.replace('"j"', '"k"'), 409), ("{}", 400), ("x", 400)):
        async with site.http.post("/seen", data=body) as answer:
            assert answer.status == status
    assert len(site.peers.got) == 1


async def test_health_tells_of_a_dead_loop(site: Site) -> None:
    async with site.http.get("/healthz") as answer:
        assert answer.status == 200
    site.peers.well = False
    async with site.http.get("/healthz") as answer:
        assert answer.status == 503


async def test_metrics_come_from_the_report(site: Site) -> None:
    site.reporter.set(checkpoint=CheckpointView(last_durable_step=40, pending_saves=2))
    site.reporter.degrade("store", Reason.STORE_UNREACHABLE, "m")
    async with site.http.get("/metrics") as answer:
        text = await answer.text()
    labels = '{name="job",namespace="ns",rank="1"'
    found = {line.rsplit(" ", 1)[0].replace(" ", ""): line.rsplit(" ", 1)[1]
             for line in text.splitlines() if not line.startswith("#")}  # fmt: skip

    def value(name: str, **more: str) -> float:
        for key, number in found.items():
            if key.startswith(f"resumable_training_sidecar_{name}" + "{") and all(
                f'{k}="{v}"' in key for k, v in {"name": "job", "rank": "1", **more}.items()
            ):
                return float(number)
        raise AssertionError(f"{name} {labels} not in {text}")

    assert value("last_durable_step") == 40
    assert value("pending_saves") == 2
    assert value("trainer_up") == 0
    assert value("transferred_bytes_total", kind="store_upload") == 7
    assert value("problem", reason="StoreUnreachable") == 1
