"""Each variable that the tests read is in docs/testing.md."""

from __future__ import annotations

import re

from kit.pages import ROOT
from rtj_api import contract

READ = re.compile(r"""(?:environ(?:\.get)?[\[(]|getenv\(|_named\()\s*"(RTJ_[A-Z0-9_]+)\"""")
SET_FOR_TRAINERS = {value for value in vars(contract).values() if isinstance(value, str)}


def test_each_switch_of_the_tests_is_on_the_page() -> None:
    sources = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    names = {name for text in sources for name in READ.findall(text)} - SET_FOR_TRAINERS
    names |= set(re.findall(r"\$\{(RTJ_[A-Z_]+)", (ROOT / "scripts" / "test").read_text()))
    page = (ROOT / "docs" / "testing.md").read_text()
    assert {"RTJ_PROMTOOL", "RTJ_LONG", "RTJ_TEST_WORKERS"} <= names, "the search finds none"
    assert sorted(name for name in names if f"`{name}" not in page) == []
