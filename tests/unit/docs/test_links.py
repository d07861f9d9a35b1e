"""Each link leads to a page and a heading that exist, and the site leaves no page out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kit.pages import DOCS, PAGES, ROOT, anchors, fences, links, named


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    wrong = []
    for link in links(page):
        address = urlsplit(link)
        if address.scheme:
            # Whether a foreign page is there is not asked: no test depends on the network.
            if address.scheme not in {"http", "https"} or "." not in address.netloc:
                wrong.append(link)
            continue
        target = (page.parent / address.path).resolve() if address.path else page
        if not target.exists():
            wrong.append(link)
        elif address.fragment and address.fragment not in anchors(target):
            wrong.append(f"{link}: no such heading")
    assert wrong == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=named)
def test_links_of_the_site_stay_in_the_site(page: Path) -> None:
    """The site is docs/ alone: what lies elsewhere is named, not linked."""
    outside = [
        link
        for link in links(page)
        if "://" not in link
        and not (page.parent / urlsplit(link).path).resolve().is_relative_to(DOCS)
    ]
    assert outside == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_code_block_says_its_language(page: Path) -> None:
    """Commands that are not marked as such would be checked by nothing."""
    lines = [
        line
        for fence in fences(page)
        if fence.language in {"", "text"}
        for line in fence.body.splitlines()
    ]
    tools = r"(?:kubectl|helm|rtj|make|docker|pip|python|git|kind|aws|pytest) "
    assert [line for line in lines if re.match(rf"(\$ )?{tools}", line)] == []
    text = re.sub(r"^( *)```.*?^\1```[ ]*$", "", page.read_text("utf-8"), flags=re.M | re.S)
    assert re.findall(rf"^ {{4,}}{tools}.*$", text, flags=re.MULTILINE) == []


class _Loader(yaml.SafeLoader):
    """The tags that name functions of Python are for mkdocs."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def _pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in _pages_of(part)]


def test_the_site_names_each_page_once() -> None:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Loader)
    named_there = _pages_of(settings["nav"])
    assert sorted(named_there) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_each_page_is_found_from_the_first_one() -> None:
    seen: set[Path] = set()
    next_ones = [DOCS / "index.md"]
    while next_ones:
        page = next_ones.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        local = [link for link in links(page) if "://" not in link and urlsplit(link).path]
        next_ones += [(page.parent / urlsplit(link).path).resolve() for link in local]
    assert set(DOCS.rglob("*.md")) - seen == set()
