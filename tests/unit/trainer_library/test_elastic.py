"""What a step means after the number of ranks changed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rtj_trainer.elastic import Size, after_change
from rtj_trainer.sizes import GangSize


def test_the_global_batch_is_kept_where_accumulation_can_keep_it() -> None:
    change = after_change(Size(4, 8, 1), world=2, batch=8, policy="linear")
    assert (change.after, change.factor) == (Size(2, 8, 2), 1.0)
    assert change.said().endswith("as before")


@pytest.mark.parametrize(
    ("policy", "factor"), [("none", 1.0), ("linear", 0.75), ("sqrt", 0.75**0.5)]
)
def test_where_it_cannot_the_policy_sets_the_learning_rate(policy: str, factor: float) -> None:
    change = after_change(Size(4, 8, 1), world=3, batch=8, policy=policy)
    assert change.after == Size(3, 8, 1)
    assert change.factor == pytest.approx(factor)
    assert "24 samples" in change.said()
    assert "not 32" in change.said()


def test_a_policy_that_is_unknown_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'cubic' is unknown; use one of: none, linear, sqrt"):
        GangSize(Size(1, 1), policy="cubic", things={})


def parts() -> dict[str, SimpleNamespace]:
    return {
        "optimizer": SimpleNamespace(param_groups=[{"lr": 0.1, "initial_lr": 0.2, "max_lr": 0.4}]),
        "scheduler": SimpleNamespace(base_lrs=[0.2], eta_min=0.01, _last_lr=[0.1]),
    }


def test_every_place_that_remembers_the_rate_is_multiplied() -> None:
    things = parts()
    size = GangSize(Size(2, 8), policy="linear", things=things)
    said = size.take_up({"size": [3, 8, 1], "lr_scale": 1.0})
    assert "3 ranks became 2" in said
    group = things["optimizer"].param_groups[0]
    assert [group[name] for name in ("lr", "initial_lr", "max_lr")] == pytest.approx(
        [0.1 * 2 / 3, 0.2 * 2 / 3, 0.4 * 2 / 3]
    )
    assert things["scheduler"].base_lrs == pytest.approx([0.2 * 2 / 3])
    assert things["scheduler"].eta_min == pytest.approx(0.01 * 2 / 3)
    assert size.state()["size"] == [2, 8, 1]


def test_a_gang_that_was_changed_and_is_started_again_keeps_the_batch_of_its_step() -> None:
    first = GangSize(Size(2, 8), policy="none", things={})
    first.take_up({"size": [4, 8, 1]})
    assert first.now == Size(2, 8, 2)
    again = GangSize(Size(2, 8), policy="none", things={})
    assert again.take_up(first.state()) == ""
    assert again.now == Size(2, 8, 2)
    other = GangSize(Size(2, 8, 4), policy="none", things={})
    other.take_up(first.state())
    assert other.now == Size(2, 8, 4), "the script asks for another one than at the save"


def test_the_operators_factor_counts_from_the_full_gang() -> None:
    things = parts()
    size = GangSize(Size(2, 8), policy="none", things=things)
    size.take_up({"size": [2, 8, 1], "lr_scale": 0.5})
    size.scale_as_told(0.25)
    assert things["optimizer"].param_groups[0]["lr"] == pytest.approx(0.05)
    size.scale_as_told(0.25)
    assert things["optimizer"].param_groups[0]["lr"] == pytest.approx(0.05)
