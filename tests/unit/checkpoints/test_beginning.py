"""Which save a run begins from that finds a directory nobody has looked at."""

from __future__ import annotations

import pytest
from rtj_sidecar.checkpoints.beginning import Mixed, newest_of
from rtj_sidecar.checkpoints.types import FoundSave


def found(
    root: str, *, step: int | None = None, epoch: int | None = None, unit: str = "step"
) -> FoundSave:
    return FoundSave(root, "torch", (), step=step, epoch=epoch, facts={"unit": unit})


@pytest.mark.parametrize(
    ("saves", "newest"),
    [
        ((), None),
        ((found("a", step=9), found("b", step=10), found("c", step=2)), "b"),
        ((found("a", epoch=3), found("b", epoch=2)), "a"),
        # Steps that restart with each epoch.
        ((found("a", step=90, epoch=1), found("b", step=10, epoch=2)), "b"),
        ((found("a", step=90, epoch=1), found("b", step=100, epoch=1)), "b"),
        ((found("a", step=5), found("b", step=10, epoch=2)), "b"),
    ],
)
def test_newest(saves: tuple[FoundSave, ...], newest: str | None) -> None:
    for order in (saves, saves[::-1]):
        best = newest_of(order)
        assert not isinstance(best, Mixed)
        assert (best.root_key if best else None) == newest


@pytest.mark.parametrize(
    "saves",
    [
        (found("epoch_3", epoch=3), found("step_500", step=500)),
        (found("ckpt_3", step=3, unit="number"), found("step_500", step=500)),
    ],
)
def test_mixed_units_are_no_order(saves: tuple[FoundSave, ...]) -> None:
    best = newest_of(saves)
    assert isinstance(best, Mixed)
    assert {best.one.root_key, best.other.root_key} == {save.root_key for save in saves}
