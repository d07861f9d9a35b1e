"""The operator dies before write k, for every k of every named scenario: the same end.

What comes back remembers nothing; counters must be exact all the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit.scenarios import SCENARIOS
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


@pytest.mark.parametrize("name", sorted(set(STORIES) - LOOSE))
def test_same_end_wherever_the_operator_dies(name: str) -> None:
    scenario = STORIES[name]
    calm = scenario.run()
    expected = end_of(calm)
    assert calm.world.writes > 0
    for k in range(1, calm.world.writes + 1):
        struck = scenario.run(gate=crash_at(k))
        assert struck.crashes == 1, f"write {k} was never tried"
        assert end_of(struck) == expected, f"died before write {k}:\n" + "\n".join(struck.log)


@pytest.mark.parametrize("name", sorted(LOOSE))
def test_same_counters_wherever_the_operator_dies(name: str) -> None:
    scenario = STORIES[name]
    calm = end_of(scenario.run())
    loose = {"attempt", "ranks", "causes"}
    expected = {k: v for k, v in calm.items() if k not in loose}
    for k in range(1, scenario.run().world.writes + 1):
        struck = end_of(scenario.run(gate=crash_at(k)))
        assert {k: v for k, v in struck.items() if k not in loose} == expected
