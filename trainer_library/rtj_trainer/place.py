"""Where a run stands: epoch, place in the data, and the random states that belong to this moment.

The random states of a save are set twice: when it is restored, and again when its epoch has been
opened, for the script may draw in between, and so does the opening. Must never be asked for a
batch ahead of the trainer.

Between two epochs the place is that before the next one: nothing of it was taken yet, and what
its beginning draws at random is drawn from the states of the save.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from rtj_trainer import loaders, randomness


class Place:
    """`epoch` counts from 0; an epoch that is over counts as the one it stands in until the next
    one begins, so that what a script does between them belongs to the first."""

    def __init__(self, loader: Any, *, rank: int, world: int, deaf_to: Sequence[int] = ()) -> None:
        self._rank = rank
        self.position: loaders.Position = (
            loaders.NoPosition()
            if loader is None
            else loaders.position_of(loader, rank=rank, world=world, deaf_to=deaf_to)
        )
        self.epoch = 0
        self._samples_before = 0
        self._is_epoch_over = False
        self._is_begun = False
        self._resumed: Optional[Mapping[str, Any]] = None
        self._resumed_rng: Optional[Mapping[str, Any]] = None
        self._resumed_samples = 0
        self._taken_at_step = 0

    @property
    def epochs_done(self) -> int:
        """Epochs of which every batch was taken."""
        return self.epoch + int(self._is_epoch_over)

    @property
    def samples(self) -> Optional[int]:
        """Samples of the whole gang so far; None where the loader cannot be counted."""
        if self._resumed is not None:
            return self._resumed_samples
        samples = self.position.samples()
        if samples is None:
            return None
        return self._samples_before + (samples if self._is_begun else 0)

    @property
    def taken(self) -> int:
        """Batches of this epoch that this rank was given."""
        if self._resumed is not None:
            return int(self._resumed.get("taken", 0))
        return self.position.taken if self._is_begun else 0

    @property
    def batches_of_step(self) -> int:
        """Batches since the last step."""
        return self.position.taken - self._taken_at_step

    def step_is_made(self) -> None:
        """The batches so far belong to steps that are done."""
        self._taken_at_step = self.position.taken

    def rest_of_epoch(self) -> Iterator[Any]:
        """The batches that are left of this epoch; of the next one where this one is over."""
        self.next_epoch()
        resumed, self._resumed = self._resumed, None
        rng, self._resumed_rng = self._resumed_rng, None
        is_within = resumed is not None and resumed.get("begun", True)
        if rng is not None and not is_within:
            randomness.put_back(rng)
        batches = self.position.begin(epoch=self.epoch, resumed=resumed)
        self._is_begun = True
        if rng is not None and is_within:
            randomness.put_back(rng)
        self._taken_at_step = self.position.taken
        return batches

    def epoch_is_over(self) -> None:
        """Every batch of it was taken."""
        self._is_epoch_over = True

    def next_epoch(self) -> None:
        """Goes on to the next one where this one is over."""
        if self._is_epoch_over:
            self._samples_before += self.position.samples() or 0
            self.epoch += 1
            self._is_epoch_over = self._is_begun = False

    def own_state(self) -> dict[str, Any]:
        """What this rank has for itself."""
        if self._resumed is not None:
            place = self._resumed
        else:
            place = self.position.state() if self._is_begun else self.position.state_before()
        return {"rng": self._resumed_rng or randomness.taken(), "dataloader": place}

    def shared_state(self) -> dict[str, Any]:
        """What is the same on every rank, but for what the save itself says."""
        return {"epoch": self.epoch, "samples": self.samples or 0}

    def samples_before_epoch(self) -> int:
        """Samples of the epochs before this one."""
        return self._samples_before

    def take_up(self, extras: Mapping[str, Any]) -> list[str]:
        """Goes on from a save. Returns what cannot be exact, in words."""
        inexact = list(self.position.inexact)
        self.epoch = int(extras.get("epoch", 0))
        own = extras.get("rtj_trainer", {})
        self._samples_before = int(own.get("samples_before", 0))
        self._resumed_samples = int(extras.get("samples", 0))
        places, rngs = extras.get("dataloader") or [], extras.get("rng") or []
        if places:
            mine = places[self._rank] if self._rank < len(places) else places[0]
            self._resumed = mine if mine["kind"] != "none" else None
        else:
            inexact.append("the place in the data is not in the save: its epoch begins anew")
        if self._rank < len(rngs):
            self._resumed_rng = rngs[self._rank]
            inexact += randomness.put_back(rngs[self._rank])
        else:
            inexact.append(f"the save has no random states of rank {self._rank}: it begins its own")
            randomness.begin_at(randomness.mixed(int(extras.get("step", 0)), self._rank))
            self._resumed_rng = randomness.taken()
        each = extras.get("kept") or []
        if each and self._rank >= len(each):
            inexact.append(f"generators and Kept of rank {self._rank} begin as those of rank 0")
        return inexact
