"""What a resume would miss, from the facts alone."""

from __future__ import annotations

import pytest
from rtj_sidecar.checkpoints.resume_state import PARTS, parts_named, resume_state


def test_facts_of_an_older_sidecar_say_nothing() -> None:
    told = resume_state({"keys": ["model"]})
    assert (told.held, told.missing, told.unknown) == ((), (), PARTS)
    assert not told.weights_only


def test_parts_are_held_missing_or_unknown() -> None:
    told = resume_state({"has": {"optimizer": True, "rng": False, "scaler": None}})
    assert told.held == ("optimizer",)
    assert told.missing == ("rng",)
    assert told.unknown == ("scheduler", "scaler", "loader")
    assert resume_state({"has": {"optimizer": False}}).weights_only


@pytest.mark.parametrize(
    ("names", "held"),
    [
        (
            ("model", "optimizer", "lr_scheduler", "rng_state", "dataloader"),
            set(PARTS) - {"scaler"},
        ),
        (("state_dict", "optimizer_states", "lr_schedulers"), {"optimizer", "scheduler"}),
        (("model", "GradScaler"), {"scaler"}),
        (("model", "cuda_rng", "sampler"), {"rng", "loader"}),
        (("model", "optimal_bound"), {"optimizer"}),
    ],
)
def test_parts_by_name(names: tuple[str, ...], held: set[str]) -> None:
    assert {part for part, there in parts_named(names).items() if there} == held


def test_a_scaler_that_is_not_there_is_no_loss_and_a_name_does_not_make_an_optimizer() -> None:
    has = parts_named(("model", "optimal_bound"), optimizer=False)
    assert has == {"optimizer": False, "scheduler": False, "rng": False, "loader": False}
