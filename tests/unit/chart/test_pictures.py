"""The pictures of the dashboards in docs/: of what is there now, whole, and nothing but text.

They are drawn by `tools/panels/draw.py` from a run on a real cluster, by hand; here is seen that
they still are of these dashboards.
"""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from kit import boards
from kit import browser as browsers
from kit.boards import BOARDS
from kit.browser import Browser
from kit.pages import DOCS

SVG = "http://www.w3.org/2000/svg"
CANNOT_SAY = ("NaN", "undefined", "Infinity", "[object")


def picture(name: str) -> str:
    return (DOCS / f"dashboard-{name}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BOARDS)
def test_it_shows_every_panel_and_each_has_data(name: str) -> None:
    board, text = BOARDS[name], picture(name)
    for panel in board["panels"]:
        assert f">{escape(panel['title'])}</text>" in text, panel["title"]
    of_a_site = sum(boards.is_of_a_site(target["expr"]) for _, target in boards.queries(board))
    assert text.count("No data") == of_a_site
    said = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert not [word for word in said for bad in CANNOT_SAY if bad in word]


@pytest.mark.parametrize("name", BOARDS)
def test_every_line_that_a_panel_draws_is_named(name: str) -> None:
    """Legends whose text is fixed; the others depend on what jobs there were."""
    text = picture(name)
    for panel, target in boards.queries(BOARDS[name]):
        legend = target.get("legendFormat", "")
        if panel["type"] == "timeseries" and "{{" not in legend:
            assert f">{legend}</text>" in text, f"{panel['title']}: {legend}"


@pytest.mark.parametrize("name", BOARDS)
def test_it_is_text_that_fetches_and_runs_nothing(name: str) -> None:
    text = picture(name)
    root = ElementTree.fromstring(text)
    kinds = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert not kinds & {"image", "script", "foreignObject", "use", "a", "style"}
    assert set(re.findall(r'"(https?:[^"]*)"', text)) == {SVG}
    assert len(text) < 400_000


@pytest.mark.parametrize("name", BOARDS)
def test_a_browser_draws_all_of_it_within_its_frame(name: str, tmp_path: Path) -> None:
    binary = browsers.found()
    if binary is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing: scripts/setup installs it")
        pytest.skip("chromium is missing: apt-get install chromium")
    page = tmp_path / "page.html"
    policy = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'
    # A plot's own drawing is cut at its edges, and so not asked for.
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(picture(name))
    plots = root.findall(f"{{{SVG}}}svg")
    assert plots
    for plot in plots:
        root.remove(plot)
    flat = ElementTree.tostring(root, encoding="unicode")
    page.write_text(f"<!doctype html><html><head>{policy}</head><body>{flat}</body></html>")
    found = Browser(binary, tmp_path).look(page, width=1420)
    assert found["drawings"] == 1
    assert found["outside"] == []
    assert found["requests"] == []
