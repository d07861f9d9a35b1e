"""A step made twice that went otherwise names the part that did not come back."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_trainer import comparing

ALL = ("model", "optimizer", "scheduler")
FIRST = {
    step: {"step": step, "loss": 2.0 / step, "grad_norm": 1.0, "lr": 0.1, "batch_hash": f"b{step}"}
    for step in range(11, 20)
}


def second(at: int = 11, **changed: Any) -> list[dict[str, Any]]:
    return [{**FIRST[step], **(changed if step == at else {})} for step in range(11, 15)]


def test_the_same_steps_are_the_same() -> None:
    assert comparing.difference(FIRST, second(), registered=ALL) is None
    assert comparing.is_bitwise(FIRST, second())
    assert comparing.compared(FIRST, second()) == 4


@pytest.mark.parametrize(
    ("registered", "records", "expected"),
    [
        (("model", "optimizer"), second(lr=0.2), "no scheduler was registered"),
        (ALL, second(lr=0.2), "scheduler was not brought back as it was"),
        (ALL, second(batch_hash="other"), "does the script iterate over run.batches"),
        (("optimizer",), second(loss=9.0), "no model was registered"),
        (ALL, second(loss=9.0), "weights, random states or the batch differ"),
        (("model", "scheduler"), second(at=12, loss=9.0), "no optimizer was registered"),
        (ALL, second(at=12, grad_norm=float("nan")), "step 12: grad_norm is nan, and was 1.0"),
    ],
)
def test_a_difference_is_explained(registered: Any, records: Any, expected: str) -> None:
    found = comparing.difference(FIRST, records, registered=registered)
    assert found is not None
    assert expected in found


def test_sums_in_another_order_are_no_difference_but_not_bit_for_bit() -> None:
    records = second(loss=2.0 / 11 * (1 + 1e-6))
    assert comparing.difference(FIRST, records, registered=ALL) is None
    assert not comparing.is_bitwise(FIRST, records)


def test_steps_that_were_never_made_before_prove_nothing() -> None:
    assert comparing.difference({}, second(loss=9.0), registered=ALL) is None
