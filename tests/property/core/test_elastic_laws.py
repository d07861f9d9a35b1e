"""The arithmetic of an elastic gang: at every allowed size a step takes the same samples."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from rtj_api.rules.elastic import (
    Batch,
    Elastic,
    LearningRate,
    accumulation,
    allowed_sizes,
    arithmetic,
    size_for,
    why_uneven,
)

SIZES = st.integers(1, 64)
BATCHES = st.builds(
    Batch, whole=st.integers(1, 4096), micro=st.integers(1, 16), procs=st.integers(1, 8)
)


@given(batch=BATCHES, size=SIZES)
def test_accumulation_keeps_the_global_batch_or_says_why_not(batch: Batch, size: int) -> None:
    count = accumulation(batch, size=size)
    if count is None:
        assert why_uneven(batch, size=size) is not None
        assert batch.whole % (size * batch.procs * batch.micro) != 0
    else:
        assert why_uneven(batch, size=size) is None
        assert count >= 1
        assert count * size * batch.procs * batch.micro == batch.whole


@given(full=SIZES, batch=BATCHES | st.none(), data=st.data())
def test_every_allowed_size_lies_within_the_bounds_and_keeps_the_batch(
    full: int, batch: Batch | None, data: st.DataObject
) -> None:
    least = data.draw(st.integers(1, full))
    listed = data.draw(st.lists(SIZES, max_size=5))
    sizes = allowed_sizes(full=full, least=least, listed=listed, batch=batch)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] == full
    for size in sizes[:-1]:
        assert least <= size < full
        assert not listed or size in listed
        assert batch is None or accumulation(batch, size=size) is not None


@given(sizes=st.lists(SIZES, min_size=1, unique=True), room=st.integers(0, 70))
def test_the_size_is_the_largest_that_has_room(sizes: list[int], room: int) -> None:
    size = size_for(sizes, room=room)
    if size is None:
        assert min(sizes) > room
    else:
        assert size <= room
        assert not [n for n in sizes if size < n <= room]


@given(batch=BATCHES, first=SIZES, second=SIZES, step=st.integers(0, 10**6))
def test_a_step_is_the_same_position_in_the_data_at_any_size(
    batch: Batch, first: int, second: int, step: int
) -> None:
    told = [accumulation(batch, size=size) for size in (first, second)]
    assume(None not in told)
    cursors = {
        step * (count or 0) * size * batch.procs * batch.micro
        for count, size in zip(told, (first, second), strict=True)
    }
    assert cursors == {step * batch.whole}


@given(full=SIZES, data=st.data(), policy=st.sampled_from(LearningRate))
def test_the_learning_rate_is_whole_at_full_size_and_never_above(
    full: int, data: st.DataObject, policy: LearningRate
) -> None:
    size = data.draw(st.integers(1, full))
    wish = Elastic(
        full=full,
        sizes=tuple(range(1, full + 1)),
        scale_down_after=1.0,
        grows=True,
        learning_rate=policy,
    )
    scale = arithmetic(wish, size=size).learning_rate_scale
    assert 0 < scale <= 1
    assert (scale == 1) == (size == full or policy is LearningRate.NONE)
    assert policy is not LearningRate.LINEAR or abs(scale * full - size) < 1e-5
    assert policy is not LearningRate.SQRT or abs(scale * scale * full - size) < 1e-5
