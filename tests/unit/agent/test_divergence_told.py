"""What a sidecar finds in the words of several ranks that write one progress file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from rtj_api.rules.divergence import Kind
from rtj_api.wire import DivergenceView
from rtj_sidecar.station import Station
from rtj_sidecar.trainer.losses import Losses
from rtj_sidecar.trainer.signs import Sign
from rtj_sidecar.trainer.trail import Steps
from rtj_sidecar.verifying import verify


def noted(losses: list[float], *, ranks: int) -> DivergenceView | None:
    """Of a job that only wants to be told."""
    told = [Sign(step=at, loss=loss) for at, loss in enumerate(losses) for _ in range(ranks)]
    entry = SimpleNamespace(resume=SimpleNamespace(scratch=True, step=None), divergence=None)

    def note(**fields: Any) -> None:
        vars(entry).update(fields)

    at = SimpleNamespace(
        is_after_go=True,
        is_training=True,
        steps=Steps().with_file(told),
        losses=Losses(),
        journal=SimpleNamespace(entry=entry, note=note),
        reporter=SimpleNamespace(set=lambda **fields: None),
        site=SimpleNamespace(
            config=SimpleNamespace(verify_resume=SimpleNamespace(stop_on_divergence=False))
        ),
    )
    verify(cast(Station, at))
    return cast("DivergenceView | None", entry.divergence)


def test_an_explosion_is_found_however_many_ranks_tell_of_each_step() -> None:
    usual = [2.0 + 0.05 * (step % 3) for step in range(40)]
    for ranks in (1, 8):
        found = noted([*usual, 9.0, 11.0, 14.0], ranks=ranks)
        assert found is not None
        assert (found.kind, found.step) == (Kind.EXPLODED, 40)
        assert noted([*usual, 9.0, 11.0], ranks=ranks) is None
