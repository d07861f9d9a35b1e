"""The page of `rtj report`: every story of the simulation, whole, escaped, and in a browser."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kit import browser as browsers
from kit.browser import Browser
from kit.scenarios import SCENARIOS
from kit.scenarios_of_leaving import LEAVINGS
from kit.scenarios_of_scaling import SCALINGS
from kit.scenarios_of_spares import SPARES
from kit.scenarios_of_trouble import TROUBLES
from kit.stub_kubectl import StubKubectl, job_of
from rtj_cli.jobs import seen
from rtj_cli.report import charts
from rtj_cli.report.axes import Axis
from rtj_cli.report.page import page
from rtj_cli.report.story import SavePoint, Story, decisions_in, stretches

STORIES = {**SCENARIOS, **SPARES, **TROUBLES, **LEAVINGS, **SCALINGS}
VOID = {"meta", "br", "hr"}


@cache
def story(name: str) -> Story:
    operator = STORIES[name].run()
    world = operator.world
    job = seen(job_of(world.state))
    begin = job.created_at or 0.0
    saves = [
        SavePoint(
            name=each.name,
            step=each.step,
            loss=2.0 * math.exp(-each.step / 20),
            attempt=each.fence,
            at=begin + 4.0 * index,
            state="valid",
            is_branch=False,
        )
        for index, each in enumerate(world.store.saves)
    ]
    return Story(job=job, pods=(), events=(), saves=saves, decisions=(), missing=(), now=world.now)


class Balanced(HTMLParser):
    """Every tag is closed in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe", "object", "base", "form")
        self.links += [value or "" for key, value in attrs if key in ("href", "src", "style")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", STORIES)
def test_every_story_is_a_whole_page(name: str) -> None:
    told = story(name)
    text = page(told)
    parser = Balanced()
    parser.feed(text)
    assert (parser.open, parser.links) == ([], [])
    assert "None" not in re.sub(r"<style>.*?</style>|on NoneType", "", text, flags=re.DOTALL)
    assert not re.search(
        r"(?:url\(|@import|https?://(?!www\.w3\.org/2000/svg))", text.split("<body")[0]
    )
    for record in told.job.status.attempts:
        assert f"#{record.attempt} · {record.kind.value} · {record.cause}" in text


@pytest.mark.parametrize("name", STORIES)
def test_the_stages_of_an_attempt_follow_each_other(name: str) -> None:
    told = story(name)
    for record in told.job.status.attempts:
        parts = stretches(told.job, record, now=told.now)
        for before, after in pairwise(parts):
            assert before.end == pytest.approx(after.begin)
        assert all(part.end > part.begin for part in parts)


def test_what_a_trainer_printed_cannot_become_markup() -> None:
    told = story("crash_in_place")
    evil = "<script>alert(1)</script>\"'&"
    raw = json.loads(json.dumps(told.job.raw).replace("killed by SIGKILL", "@@"))
    text = json.dumps(raw).replace("@@", json.dumps(evil)[1:-1])
    text = page(
        Story(
            job=seen(json.loads(text)),
            pods=(),
            events=(
                {"lastTime": 1.0, "type": "Normal", "reason": evil, "count": 1, "message": evil},
            ),
            saves=(),
            decisions=(),
            missing=(evil,),
            now=told.now,
        )
    )
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;") >= 4


def test_the_ledger_is_a_waterfall_that_ends_at_the_whole() -> None:
    told = story("newest_saves_corrupt")
    drawn = charts.ledger(told)
    assert drawn is not None
    bars = [
        (float(x), float(w))
        for x, w in re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', drawn)
    ]
    *parts, whole = bars
    for before, after in pairwise(parts):
        assert after[0] == pytest.approx(before[0] + before[1], abs=1.1)
    assert parts[-1][0] + parts[-1][1] == pytest.approx(whole[0] + whole[1], abs=1.1)


def test_charts_without_what_they_need_are_left_out() -> None:
    told = story("crash_loop")
    status = told.job.status
    stepless = status.model_copy(
        update={
            "attempts": [a.model_copy(update={"to_step": None}) for a in status.attempts],
            "progress": status.progress.model_copy(update={"step": None}),
        }
    )
    assert charts.steps(replace(told, job=replace(told.job, status=stepless))) is None
    assert charts.loss(()) is None
    broken = SavePoint("f1-n1-s1", 1, math.nan, 1, 1.0, "valid", False)
    assert charts.loss((broken, broken)) is None


def test_ticks_are_round_and_inside() -> None:
    assert Axis(0, 10, 0, 100).ticks() == [0, 2, 4, 6, 8, 10]
    assert Axis(5, 5, 0, 100).ticks() == [5]
    assert [words for _, words in Axis(0, 60, 0, 1).times()] == [
        f"00:00:{s:02d}" for s in (0, 10, 20, 30, 40, 50)
    ] + ["00:01:00"]
    for span in (0.5, 90, 7200, 86400, 3e6, 4e8):
        assert 1 <= len(Axis(1e9, 1e9 + span, 0, 1).times()) <= 8


def test_decisions_are_those_of_this_job() -> None:
    job = story("crash_in_place").job
    line = {
        "time": "2026-01-01T00:00:00.000+00:00",
        "message": "decided",
        "job": "ns/gpt",
        "uid": "11111111-2222",
        "attempt": 2,
        "rule": "fault",
        "why": "rank 1 ended",
        "evidence": {"exitCode": 137},
        "actions": ["direct gpt-1"],
    }
    lines = [
        json.dumps(line),
        json.dumps({**line, "job": "ns/other"}),
        json.dumps({**line, "uid": "an older one"}),
        json.dumps({**line, "message": "acted"}),
        "no json",
        "[1]",
    ]
    (found,) = decisions_in(lines, job=job)
    assert (found.rule, found.evidence, found.at) == ("fault", {"exitCode": 137}, 1767225600.0)


def test_the_command_names_what_it_could_not_have(
    rtj: Callable[..., Any], cluster: StubKubectl, tmp_path: Path
) -> None:
    cluster.job(job_of(SCENARIOS["crash_in_place"].run().world.state))
    to = tmp_path / "night.html"
    said = rtj("report", "gpt", "--to", to, "--no-store")
    text = to.read_text()
    for words in ("its pods", "operator&#x27;s log", "saves and losses: --no-store"):
        assert words in text, words
    assert "not on the page: its pods" in said.words
    assert rtj("report", "gpt", "--to", "-", "--no-store").out.startswith("<!doctype html>")
    assert "nowhere" in rtj("report", "gpt", "--to", "/nowhere/x", "--no-store", code=4).words


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    binary = browsers.found()
    if binary is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing: scripts/setup installs it")
        pytest.skip("chromium is missing: apt-get install chromium")
    return Browser(binary, tmp_path_factory.mktemp("browser"))


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [
        ("crash_in_place", 1100, False),
        ("newest_saves_corrupt", 1100, True),
        ("crash_loop", 390, False),
        ("suspended_and_resumed", 390, True),
    ],
)
def test_a_browser_lays_it_out(
    browser: Browser, tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(story(name)))
    laid = browser.look(path, width=width, dark=dark)
    assert laid["outside"] == []
    assert laid["requests"] == []
    assert laid["overflow"] <= 0
    assert laid["drawings"] >= 2
    assert ("15, 20, 25" in laid["ground"]) is dark
    assert laid["ground"] != laid["ink"]
    assert story(name).job.full_name in laid["text"]


def test_it_can_be_printed(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(story("crash_in_place")))
    assert browser.printed(path).startswith(b"%PDF")
