"""The operator dies after write k, for every k of every named scenario: the same end.

Before the first write, too. `make test` takes every k of the plain scenarios and each second one of
those that build on them; `make test-long` the others, and the moments before each write, which may
be long after the last. What comes back remembers nothing; counters must be exact all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import pytest
from kit.scenarios import SCENARIOS, Scenario
from kit.scenarios_of_leaving import LEAVINGS
from kit.scenarios_of_scaling import SCALINGS
from kit.scenarios_of_spares import SPARES
from kit.scenarios_of_trouble import TROUBLES
from kit.simulated import Crash
from kit.simulated_operator import Operator

STORIES = {**SCENARIOS, **TROUBLES, **LEAVINGS, **SPARES, **SCALINGS}
# Stories whose end depends on how many fixed looks fit into a fixed time.
LOOSE = {"store_down_at_restart", "none_valid_then_allowed"}


def end_of(operator: Operator) -> dict[str, Any]:
    """What must not depend on where the operator died."""
    status = operator.world.state
    end = {
        "phase": status.phase,
        "attempt": status.attempt,
        "starts": status.starts,
        "restarts": status.restarts,
        "failures": status.failures,
        "completions": status.completions,
        "budget": status.budgets.restarts_since_progress,
        "conditions": {c.type: (c.status, c.reason) for c in status.conditions},
        "ranks": sorted((p.rank, p.made_in) for p in operator.world.pods.values()),
        "causes": [(r.kind, r.cause) for r in status.attempts if r.started],
    }
    return end


def crash_at(k: int) -> Any:
    seen = 0

    def gate(what: str) -> None:
        nonlocal seen
        seen += 1
        if seen == k:
            raise Crash(what)

    return gate


class Moments(StrEnum):
    AFTER_EACH = "after-each"
    AFTER_ODD = "after-odd"
    AFTER_EVEN = "after-even"
    BEFORE_EACH = "before-each"


def cases(names: Iterable[str]) -> list[Any]:
    """(story, moments at which the operator dies in it)"""
    found: list[Any] = []
    for name in sorted(names):
        if name in SCENARIOS:
            found.append(pytest.param(name, Moments.AFTER_EACH))
        else:
            found.append(pytest.param(name, Moments.AFTER_ODD))
            found.append(pytest.param(name, Moments.AFTER_EVEN, marks=pytest.mark.long))
        found.append(pytest.param(name, Moments.BEFORE_EACH, marks=pytest.mark.long))
    return found


def struck_runs(
    scenario: Scenario, *, writes: int, moments: Moments
) -> Iterator[tuple[str, Operator]]:
    """The story once for each moment at which the operator may die, and the moment's name."""
    if moments is not Moments.AFTER_EVEN:
        yield "before write 1", scenario.run(gate=crash_at(1))
    steps = {Moments.AFTER_ODD: (1, 2), Moments.AFTER_EVEN: (2, 2), Moments.BEFORE_EACH: (2, 1)}
    first, step = steps.get(moments, (1, 1))
    for k in range(first, writes + 1, step):
        if moments is Moments.BEFORE_EACH:
            yield f"before write {k}", scenario.run(gate=crash_at(k))
        else:
            yield f"after write {k}", scenario.run(after=crash_at(k))


@pytest.mark.parametrize(("name", "moments"), cases(set(STORIES) - LOOSE))
def test_same_end_wherever_the_operator_dies(name: str, moments: Moments) -> None:
    scenario = STORIES[name]
    calm = scenario.run()
    expected = end_of(calm)
    assert calm.world.writes > 0
    for when, struck in struck_runs(scenario, writes=calm.world.writes, moments=moments):
        assert struck.crashes == 1, f"{when}: it was never made"
        assert end_of(struck) == expected, f"died {when}:\n" + "\n".join(struck.log)


@pytest.mark.parametrize(("name", "moments"), cases(LOOSE))
def test_same_counters_wherever_the_operator_dies(name: str, moments: Moments) -> None:
    scenario = STORIES[name]
    calm = scenario.run()
    loose = {"attempt", "ranks", "causes"}
    expected = {k: v for k, v in end_of(calm).items() if k not in loose}
    for when, struck in struck_runs(scenario, writes=calm.world.writes, moments=moments):
        assert {k: v for k, v in end_of(struck).items() if k not in loose} == expected, when
