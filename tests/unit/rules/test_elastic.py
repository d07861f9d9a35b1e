"""Which saves another number of ranks can load, and the sums of a size, on cases people have."""

from __future__ import annotations

import pytest
from rtj_api.rules.elastic import (
    Batch,
    Elastic,
    LearningRate,
    allowed_sizes,
    arithmetic,
    why_fixed,
    why_uneven,
)
from rtj_api.v1alpha1 import LayoutName

ALONE, EACH = [0], [0, 1, 2]


@pytest.mark.parametrize(
    ("layout", "writers", "word"),
    [
        ("torch", ALONE, None),
        ("dcp", EACH, None),
        ("orbax", EACH, None),
        ("lightning", ALONE, None),
        ("hf-trainer", EACH, None),
        (None, ALONE, None),
        ("torch", EACH, "ranks 0, 1, 2 each wrote files of their own (torch)"),
        ("composer", EACH, "ranks 0, 1, 2 each wrote"),
        ("megatron", EACH, "ranks 0, 1, 2 each wrote"),
        (None, EACH, "of an unknown layout"),
        ("deepspeed", ALONE, "a deepspeed save fits the number of ranks that wrote it"),
        ("nvrx-local", EACH, "fits the number of ranks that wrote it"),
    ],
)
def test_which_saves_fit_one_number_of_ranks(
    layout: str | None, writers: list[int], word: str | None
) -> None:
    assert layout is None or layout in set(LayoutName)
    why = why_fixed(layout=layout, writers=writers)
    assert why is None if word is None else word in (why or "")


def test_sizes_that_change_the_batch_are_left_out() -> None:
    batch = Batch(whole=48, micro=4, procs=1)
    assert allowed_sizes(full=6, least=2, batch=batch) == (2, 3, 4, 6)
    assert allowed_sizes(full=6, least=2, listed=(4, 5)) == (4, 5, 6)
    assert (why_uneven(batch, size=5) or "").startswith("5 pods x 1 processes x microBatch 4 = 20")


def test_what_trainers_are_told() -> None:
    batch = Batch(whole=48, micro=2, procs=2)
    kept = Elastic(full=4, sizes=(3, 4), scale_down_after=1, grows=True, batch=batch)
    assert [arithmetic(kept, size=n).accumulation for n in (3, 4)] == [4, 3]
    assert arithmetic(kept, size=3).global_batch == 48
    free = Elastic(
        full=4, sizes=(1, 4), scale_down_after=1, grows=True, learning_rate=LearningRate.SQRT
    )
    told = arithmetic(free, size=1)
    assert (told.accumulation, told.global_batch, told.learning_rate_scale) == (None, None, 0.5)
