"""Step, epoch and loss of a save as all its ranks know them together. Pure.

A rank with a disk of its own may know none of them, or only half of what would tell one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rtj_sidecar.checkpoints.layouts.dcp_facts import joined_numbers
from rtj_sidecar.runs.records import SaveFacts


def labelled(told: Sequence[SaveFacts]) -> SaveFacts:
    """The facts of the first of `told` (lowest rank first, at least one), with the labels that it
    does not know: the lowest rank that states one says it, then what two of them state together."""
    lead = told[0]
    joined = joined_numbers(each.facts for each in told)
    step = _first([*(each.step for each in told), joined.get("step")])
    epoch = _first([*(each.epoch for each in told), joined.get("epoch")])
    loss = _first([*(each.loss for each in told), joined.get("loss")])
    update: dict[str, object] = {
        "step": None if step is None else int(step),
        "epoch": None if epoch is None else int(epoch),
        "loss": None if loss is None else float(loss),
    }
    if lead.step is None and step is not None:
        update["facts"] = {**lead.facts, "unit": "step"}
    return lead.model_copy(update=update)


def _first(values: Sequence[int | float | None]) -> int | float | None:
    return next((value for value in values if value is not None), None)
