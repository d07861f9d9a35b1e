"""The steps that are kept for a comparison, from a file or a save that anybody may have written."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_sidecar.trainer.signs import Sign
from rtj_sidecar.trainer.trail import Steps, first_pass, joined, next_trail, parsed

GOOD = [3, 1.5, None, None, None, None]


@pytest.mark.parametrize(
    "bad", [["x"] * 6, [[]] * 6, [], [4], [True, 1, 1, 1, 1, None], [4, 10**400, 1, 1, 1, None]]
)
def test_a_row_that_nobody_here_has_written_is_passed_over(bad: list[Any]) -> None:
    strange = parsed({"world": 1, "records": [bad, GOOD]})
    both = joined(strange, strange, world=1)
    assert both.records == [GOOD]
    steps = Steps().with_file([Sign(step=4, loss=1.25)])
    after = next_trail(strange, steps, world=1, scratch=False, bad=None)
    assert list(first_pass(after).records) == [3, 4]
