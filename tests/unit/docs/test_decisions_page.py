"""`docs/decisions.md` has one row for each rule of the operator, in the order they are asked."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from rtj_operator.core.decide import RULES

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "decisions_page.py"))


def test_the_page_in_the_tree_is_what_the_rules_say() -> None:
    assert SCRIPT["main"](["--check"]) == 0


def test_rows_are_the_rules_in_their_order() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| .+ \|$", SCRIPT["page"](), flags=re.MULTILINE)
    wanted = [(str(number), rule.__name__) for number, rule in enumerate(RULES, start=1)]
    assert rows == wanted


def test_a_rule_without_words_is_an_error() -> None:
    def silent(gang: object) -> None:
        pass

    page = SCRIPT["page"]
    page.__globals__["RULES"] = (silent,)
    try:
        with pytest.raises(ValueError, match="silent has no docstring"):
            page()
    finally:
        page.__globals__["RULES"] = RULES
