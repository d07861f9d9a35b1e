"""A save of an older attempt says nothing of the trainer that runs now."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from rtj_api.reasons import Reason
from rtj_sidecar.holding import Holding
from rtj_sidecar.messages import OpenShip
from rtj_sidecar.runs.records import ShipRecord
from rtj_sidecar.runs.ships import Ignored

SHIP = ShipRecord(
    name="f4-n1-s335",
    fence=4,
    n=1,
    step=335,
    layout="torch",
    root_key="s.pt",
    expected=[0],
    world_size=1,
    named_at=1.0,
)


@pytest.mark.parametrize(
    ("made_in", "convicts"),
    [
        (3, True),
        # Named under the new fence before the choice; another job had gone further meanwhile.
        (1, False),
        (None, False),  # a sidecar that came back knows only the record
    ],
)
async def test_only_a_save_of_this_attempt_shows_that_its_trainer_ignored_the_checkpoint(
    made_in: int | None, convicts: bool
) -> None:
    at = MagicMock(attempt=3, fence=4, candidates=[])
    at.run.publishing.try_commit = lambda *_, **__: Ignored("it did not load the checkpoint")
    holding = Holding(at)
    holding.list.open[SHIP.name] = OpenShip(record=SHIP, made_in=made_in)
    await holding.work(may_name=False)
    assert SHIP.name not in holding.list.open, "dropped by name in any case"
    assert at.fail.called is convicts
    assert at.kill_trainer.called is convicts
    if convicts:
        assert at.fail.call_args.args[0] is Reason.CHECKPOINT_IGNORED
