"""The ranks of a gang, as far as torch.distributed has been initialised; else one rank alone.

What all ranks must do at the same step is agreed on beside the steps: each gives its wishes at
the end of one step and hears all of them at the end of the next, so nobody waits. A group of its
own (gloo) keeps this from the trainer's collectives. Every method must be called by every rank,
in the same order.
"""

from __future__ import annotations

from typing import Any, Optional

from rtj_trainer.imported import imported


class Ranks:
    """`rank` of `world`."""

    def __init__(self) -> None:
        dist = imported("torch.distributed")
        ready = dist is not None and dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if ready else 0
        self.world = dist.get_world_size() if ready else 1
        self._dist = dist if self.world > 1 else None
        self.group = self._dist.new_group(backend="gloo") if self._dist is not None else None
        self._work: Any = None
        self._wishes: Any = None

    def another_group(self) -> Any:
        """A group for a thread that writes beside the steps: collectives of two threads on one
        group would meet in another order on each rank, and wait for ever. None of one rank."""
        return self._dist.new_group(backend="gloo") if self._dist is not None else None

    def heard(self) -> Optional[tuple[bool, ...]]:
        """What any rank wished for at the end of the step before; None where nobody was asked."""
        if self._work is None:
            return None
        self._work.wait()
        self._work = None
        return tuple(bool(value) for value in self._wishes.tolist())

    def wish(self, *wishes: bool) -> None:
        """To be heard by all at the end of the next step."""
        torch = imported("torch")
        if self._dist is None:
            return
        self._wishes = torch.tensor([int(wish) for wish in wishes], dtype=torch.int32)
        self._work = self._dist.all_reduce(
            self._wishes, op=self._dist.ReduceOp.MAX, group=self.group, async_op=True
        )

    def gathered(self, value: Any) -> Optional[list[Any]]:
        """Every rank's value, by rank, on rank 0; None on the others."""
        if self._dist is None:
            return [value]
        values = [None] * self.world if self.rank == 0 else None
        self._dist.gather_object(value, values, dst=0, group=self.group)
        return values

    def everyone(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank."""
        if self._dist is None:
            return [value]
        values: list[Any] = [None] * self.world
        self._dist.all_gather_object(values, value, group=self.group)
        return values
