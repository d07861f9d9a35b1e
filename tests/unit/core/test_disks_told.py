"""A pod's disk that will not do is shown in the job's conditions, with the remedy."""

from __future__ import annotations

from kit.observations import running
from kit.observations import with_report as changed
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType

from tests.unit.core.test_pod_trouble import condition_of


def test_a_volume_that_should_be_shared_is_named_with_its_rank() -> None:
    message = "/ckpt: DLRover counts all nodes' files in one directory. Mount one volume"
    problem = wire.Problem(reason=Reason.NEEDS_SHARED_VOLUME, message=message, since=1.0)
    seen = changed(running(), 1, lambda r: r.model_copy(update={"degraded": [problem]}))
    condition = condition_of(seen, ConditionType.DEGRADED)
    assert (condition.status, condition.reason) == ("True", Reason.NEEDS_SHARED_VOLUME)
    assert condition.message.startswith("rank 1: /ckpt: DLRover")
    assert "Mount one volume" in condition.message


def test_a_full_disk_comes_before_the_saves_that_it_costs() -> None:
    problems = [
        wire.Problem(reason=Reason.SAVES_VANISH, message="step 5 vanished", since=1.0),
        wire.Problem(reason=Reason.DISK_FULL, message="no room", since=2.0),
    ]
    seen = changed(running(), 0, lambda r: r.model_copy(update={"degraded": problems}))
    condition = condition_of(seen, ConditionType.DEGRADED)
    assert condition.reason == Reason.DISK_FULL
    assert condition.message == "rank 0: no room; rank 0: step 5 vanished"
