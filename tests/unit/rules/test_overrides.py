"""A user's own rules: which end they fit, in order, and that no pattern takes long."""

from __future__ import annotations

import pytest
from rtj_api.rules.exits import from_code
from rtj_api.rules.overrides import FailureAction, FailureRule, fitting, is_in


@pytest.mark.parametrize(
    ("pattern", "line", "fits"),
    [
        ("quota exceeded", "HTTP 429: Quota Exceeded for team", True),
        ("quota exceeded", "quota was exceeded", False),
        ("quota*exceeded", "quota was exceeded", True),
        ("quota*exceeded", "exceeded quota", False),
        ("*quota*", "a quota", True),
        ("a.c", "abc", False),  # no regular expression
        ("(a+)+$", "aaaa", False),
        ("end", "x" * 600 + "end", False),  # beyond what is looked at
    ],
)
def test_a_pattern_is_plain_text_with_stars(pattern: str, line: str, fits: bool) -> None:
    assert is_in(line, pattern) == fits


def rule(name: str, **fields: object) -> FailureRule:
    return FailureRule(name=name, action=FailureAction.COUNT, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ([], None),
        ([rule("A", exit_codes=(42,))], "A"),
        ([rule("A", exit_codes=(41,))], None),
        ([rule("A", log_pattern="busy")], "A"),
        # Both have to fit.
        ([rule("A", exit_codes=(41,), log_pattern="busy")], None),
        ([rule("A", exit_codes=(42,), log_pattern="idle")], None),
        ([rule("A", exit_codes=(42,), log_pattern="busy")], "A"),
        # The first that fits decides.
        ([rule("A", log_pattern="idle"), rule("B", exit_codes=(42,)), rule("C")], "B"),
    ],
)
def test_the_first_rule_that_fits_decides(rules: list[FailureRule], name: str | None) -> None:
    found = fitting(rules, end=from_code(42), lines=["step 1", "licence server busy", "bye"])
    assert (found.name if found is not None else None) == name


def test_a_signal_is_meant_by_its_shells_code() -> None:
    killed = fitting([rule("Segv", exit_codes=(139,))], end=from_code(245), lines=[])
    assert killed is None  # 245 is what the wrapper passed on
    assert fitting([rule("Segv", exit_codes=(139,))], end=from_code(139), lines=[]) is not None
