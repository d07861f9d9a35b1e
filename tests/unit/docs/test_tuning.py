"""The figures of docs/tuning-the-interval.md are those of the rule that the operator uses."""

from __future__ import annotations

import re

from kit.pages import DOCS
from rtj_api.rules import interval

ROW = re.compile(r"^\| (\d+) h \| (\d+) s \| ([\d.]+) min \| ([\d.]+) % \| ([\d.]+) % \|$", re.M)


def test_the_table_is_the_rules() -> None:
    rows = ROW.findall((DOCS / "tuning-the-interval.md").read_text(encoding="utf-8"))
    assert len(rows) >= 9
    for hours, seconds, *told in rows:
        mtti, stall = 3600 * float(hours), float(seconds)
        best = interval.exact(stall=stall, mtti=mtti)
        tenth = interval.mtti_fraction(mtti=mtti)
        costs = [interval.overhead(interval=each, stall=stall, mtti=mtti) for each in (best, tenth)]
        assert told == [f"{best / 60:.1f}", *(f"{100 * cost:.1f}" for cost in costs)]


def test_half_or_double_of_the_best_costs_a_quarter_more() -> None:
    stall, mtti = 10.0, 86_400.0
    best = interval.exact(stall=stall, mtti=mtti)
    least = interval.overhead(interval=best, stall=stall, mtti=mtti)
    for factor in (0.5, 2):
        other = interval.overhead(interval=factor * best, stall=stall, mtti=mtti)
        assert abs(other / least - 1.25) < 0.01
