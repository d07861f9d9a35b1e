"""A rank for which all others wait: told by what each says of its own work."""

from __future__ import annotations

import pytest
from kit.observations import started, with_report
from kit.simulated import World
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.rules.straggler import stragglers
from rtj_api.status import ConditionType
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import JobSpec
from rtj_sidecar.trainer.progress import Progress
from rtj_sidecar.trainer.signs import Sign


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        ({}, ()),
        ({0: 1.0, 1: 9.0}, ()),
        ({0: 1.0, 1: 1.0, 2: 1.4}, ()),
        ({0: 1.0, 1: 1.0, 2: 1.6}, (2,)),
        ({0: 3.0, 1: 1.0, 2: 1.0, 3: 1.1, 4: 2.0}, (0, 4)),
        ({0: 0.001, 1: 0.001, 2: 0.004}, ()),
    ],
)
def test_who_is_slow(seconds: dict[int, float], slow: tuple[int, ...]) -> None:
    assert stragglers(seconds) == slow


def test_a_rank_tells_the_median_of_its_newest_steps() -> None:
    progress = Progress()
    for step in range(7):
        progress = progress.with_file(Sign(step=step, step_seconds=0.5), now=float(step))
    assert progress.view().step_seconds is None, "the first ones compile"
    for step in range(7, 50):
        taken = 60.0 if step == 20 else 0.5
        progress = progress.with_file(Sign(step=step, step_seconds=taken), now=float(step))
    assert progress.view().step_seconds == 0.5
    assert Progress().with_file(Sign(step=1, step_seconds=float("nan")), now=1.0).took == ()


def test_it_is_told_in_a_condition_and_nothing_is_replaced() -> None:
    operator = started(World(spec=JobSpec(replicas=3, run_id="ns/gpt", template_hash="h1")))
    operator.run(6)
    seen = operator.world.observe()
    for rank, seconds in ((0, 0.5), (1, 0.5), (2, 1.2)):

        def change(report: wire.Report, seconds: float = seconds) -> wire.Report:
            progress = report.progress.model_copy(update={"step_seconds": seconds})
            return report.model_copy(update={"progress": progress})

        seen = with_report(seen, rank, change)
    plan = decide(seen)
    assert plan.rule == "refresh"
    assert plan.status is not None
    told = plan.status.condition(ConditionType.DEGRADED)
    assert told is not None
    assert (told.status, told.reason) == ("True", Reason.RANK_SLOW)
    assert "rank 2 on " in told.message
    assert plan.status.attempt == 1
