"""Each sample once an epoch, however often the number of ranks changes within it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtj_trainer import sharing


def rounds(order: list[int], sizes: list[tuple[int, int]], *, batch: int) -> list[int]:
    """The samples that a gang takes: so many rounds of batches with so many ranks, the last size
    to the end."""
    taken: list[int] = []
    cursor = 0
    for number, (world, count) in enumerate(sizes):
        is_last = number == len(sizes) - 1
        shares = [
            list(
                sharing.batches_of(
                    sharing.share_of(order, cursor=cursor, rank=rank, world=world),
                    size=batch,
                    drop_last=False,
                )
            )
            for rank in range(world)
        ]
        assert len({len(share) for share in shares}) == 1, "a rank would wait for ever"
        for turn in range(len(shares[0]) if is_last else min(count, len(shares[0]))):
            for share in shares:
                taken += share[turn]
                cursor += len(share[turn])
    return taken


def test_four_two_three_ranks_take_each_sample_once() -> None:
    order = [(7 * number) % 101 for number in range(101)]
    taken = rounds(order, [(4, 3), (2, 5), (3, 0)], batch=4)
    assert set(taken) == set(order)
    # What is taken twice fills up the last round, and is never more than a rank less than the gang.
    assert len(taken) - len(order) <= 2


@given(
    st.integers(1, 200),
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9)), min_size=1, max_size=5),
)
def test_none_is_left_out_and_only_the_last_round_is_filled_up(
    samples: int, batch: int, sizes: list[tuple[int, int]]
) -> None:
    order = list(range(samples))
    taken = rounds(order, sizes, batch=batch)
    assert set(taken) == set(order)
    assert len(taken) - samples <= max(world for world, _ in sizes) - 1


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("samples", [1, 4, 9, 30])
def test_without_a_change_it_is_what_distributed_sampler_gives(samples: int, world: int) -> None:
    """PyTorch's rule: fill up from the beginning to a multiple of the ranks, then take turns."""
    order = list(range(samples))
    whole = order * world
    total = -(-samples // world) * world
    for rank in range(world):
        mine = sharing.share_of(order, cursor=0, rank=rank, world=world)
        assert list(mine) == whole[:total][rank::world]


def test_with_drop_last_no_rank_gets_more_than_another() -> None:
    shares = [
        sharing.share_of(list(range(11)), cursor=2, rank=rank, world=4, drop_last=True)
        for rank in range(4)
    ]
    assert [list(share) for share in shares] == [[2, 6], [3, 7], [4, 8], [5, 9]]
