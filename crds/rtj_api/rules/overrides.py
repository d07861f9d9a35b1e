"""What a person says of their own job's faults, before any table: `recovery.failureRules`.

A pattern is plain text with `*`, never a regular expression: it is sought in lines that a trainer
prints, by an operator that serves every namespace, so that no pattern may take long. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rtj_api.rules.exits import Exit
from rtj_api.rules.signatures import MAX_LINE, MAX_LINES


class FailureAction(StrEnum):
    """What follows from a fault that a rule fits."""

    COUNT = "Count"
    IGNORE = "Ignore"
    AVOID_NODE = "AvoidNode"
    ROLL_BACK = "RollBack"
    FAIL_JOB = "FailJob"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    """One rule. Where both are stated, both have to fit."""

    name: str
    action: FailureAction
    exit_codes: tuple[int, ...] = ()
    log_pattern: str | None = None


def is_in(line: str, pattern: str) -> bool:
    """The parts of `pattern` between its `*` stand in `line` in their order, whatever their case.

    Takes time in proportion to the line's length.
    """
    text, at = line[:MAX_LINE].lower(), 0
    for part in pattern.lower().split("*"):
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def fitting(rules: Sequence[FailureRule], *, end: Exit, lines: Iterable[str]) -> FailureRule | None:
    """The first rule that fits this end and the last lines before it. Looks at the last 400."""
    if not rules:
        return None
    last = list(lines)[-MAX_LINES:]
    for rule in rules:
        if rule.exit_codes and end.code not in rule.exit_codes:
            continue
        pattern = rule.log_pattern
        if pattern is None or any(is_in(line, pattern) for line in last):
            return rule
    return None
