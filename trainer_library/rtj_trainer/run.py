"""A training run that can be interrupted anywhere and goes on exactly there.

The one object that a script holds. It puts the parts together: what must survive (`registered`),
the place in the data (`loaders`), saving (`keeping`), stopping (`stopping`), what is told
(`telling`). Must never change what the script computes: a run that is never interrupted is the
run that an interrupted one ends as.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional, Union

from rtj_trainer import contract, elastic, learning_rates, registered, restoring, stopping, telling
from rtj_trainer.imported import torch_or_none
from rtj_trainer.keeping import Keeper
from rtj_trainer.place import Place
from rtj_trainer.ranks import Ranks
from rtj_trainer.restoring import Restored
from rtj_trainer.sizes import GangSize
from rtj_trainer.steps import Steps
from rtj_trainer.writing import Costs

log = logging.getLogger("rtj_trainer")
_SECONDS_BETWEEN_SAVES = 600.0


class Run:
    """Make it after the model is on its device and wrapped, and after `init_process_group`.

    Everything that must survive is given by name: whatever offers `state_dict` and
    `load_state_dict` (a model, optimizer, scheduler, scaler, an average of weights), a generator,
    or a `Kept`. `loader` is what the script would iterate over.

    directory: where saves lie; by default what the supervisor says, else `checkpoints`.
    every, seconds: save after so many steps, or so many seconds; by default the interval that the
        supervisor publishes, else 600 s. keep: so many saves stay.
    accumulation: batches of a rank in a step. lr_policy: what becomes of the learning rate where
        another number of ranks changes the samples of a step: `none`, `linear`, `sqrt`.
    on_stop: `exit` ends the process with code 0 (raises `Stopped`), `return` ends `batches()` and
        leaves the reason in `stopped`. signals: which ask for it.
    gradients: save them too, for a script that calls `step` within an accumulation.
    trusted: saves may hold objects that are executed when they are loaded.
    """

    def __init__(
        self,
        *,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        loader: Any = None,
        scaler: Any = None,
        ema: Any = None,
        directory: Optional[Union[str, Path]] = None,
        every: Optional[int] = None,
        seconds: Optional[float] = None,
        keep: int = 3,
        accumulation: Optional[int] = None,
        lr_policy: str = "none",
        on_stop: str = "exit",
        signals: Iterable[int] = (signal.SIGTERM, signal.SIGUSR1),
        gradients: bool = False,
        trusted: bool = False,
        **things: Any,
    ) -> None:
        telling.speak_up()
        if on_stop not in ("exit", "return"):
            raise ValueError(f"on_stop is {on_stop!r}; use 'exit' or 'return'")
        if keep < 1 or (every is not None and every < 1):
            raise ValueError("keep and every are at least 1")
        named = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema}
        self._things = registered.checked({**named, "scaler": scaler, **things})
        if gradients and model is not None:
            self._things["gradients"] = registered.Gradients(model)
        self._told = contract.told(os.environ)
        self._ranks = Ranks()
        self.rank, self.world = self._ranks.rank, self._ranks.world
        self.directory = Path(directory or self._told.directory or "checkpoints").absolute()
        self._signals = stopping.Signals(signals)
        deaf_to = self._signals.heard
        self._place = Place(loader, rank=self.rank, world=self.world, deaf_to=deaf_to)
        batch = getattr(loader, "batch_size", None)
        parts = accumulation or self._told.accumulation or 1
        size = elastic.Size(self.world, batch if isinstance(batch, int) else 1, parts)
        self._size = GangSize(size, policy=lr_policy, things=self._things)
        self._every, self._seconds = every, seconds
        self._exits = on_stop == "exit"
        self._keeper = Keeper(self.directory, ranks=self._ranks, keep=keep, trusted=trusted)
        self._trusted = trusted
        progress = self._told.progress_file if contract.is_first_of_machine() else None
        self._lines = telling.Told(self.directory, rank=self.rank, progress=progress)
        self._steps = Steps(self._lines, registered=tuple(self._things))
        self._saved_at = time.monotonic()
        self._is_restored = False
        self.steps_done = 0
        self.stopped = ""

    @property
    def accumulation(self) -> int:
        """Batches of this rank in a step; another number of ranks may have changed it."""
        return self._size.now.accumulation

    @property
    def is_step_due(self) -> bool:
        """The batch in hand is the last of its step: time for `optimizer.step()`."""
        return self._place.batches_of_step >= self.accumulation

    @property
    def epoch(self) -> int:
        """The epoch it stands in, from 0; after its last batch still that one."""
        return self._place.epoch

    @property
    def batches_done(self) -> int:
        """Batches of this epoch that this rank was given."""
        return self._place.taken

    @property
    def costs(self) -> Costs:
        """What saves have cost so far."""
        return self._keeper.writer.costs

    def restore(self, *, allow_scratch: bool = False) -> Restored:
        """Brings everything back that is registered; on every rank, before the first batch.

        Says what it restored and what it could not. Raises RuntimeError where saves exist and
        none is whole (`allow_scratch` begins at step 0 then), ValueError for a save that was
        named and cannot be loaded.
        """
        self._is_restored = True
        self._keeper.check(self._things)
        found = restoring.restore(
            self.directory,
            told=self._told,
            things=self._things,
            ranks=self._ranks,
            trusted=self._trusted,
            allow_scratch=allow_scratch,
        )
        inexact = self._take_up(found) if found is not None else ()
        self._size.scale_as_told(self._told.learning_rate_scale)
        if self.rank == 0:
            self._lines.begun()
            if found is not None:
                self._steps.compare_beyond(self.steps_done)
        result = Restored()
        if found is not None:
            result = Restored(
                self.steps_done, found.path, found.restored, found.missing, found.unclaimed, inexact
            )
        if self.rank == 0:
            log.info("%s", result.said())
        self._saved_at = time.monotonic()
        self._steps.ended()
        return result

    def _take_up(self, found: restoring.Found) -> tuple[str, ...]:
        self._keeper.spared = found.path
        self.steps_done = int(found.extras.get("step", self._told.resume_step or 0))
        self._keeper.newest = self.steps_done
        inexact = self._place.take_up(found.extras)
        changed = self._size.take_up(found.extras.get("rtj_trainer", {}))
        if changed and self.rank == 0:
            log.info("%s", changed)
        return tuple(inexact)

    def epochs(self, total: int) -> Iterator[int]:
        """The numbers of the epochs that are left of `total`, the one it stands in first."""
        while self.epoch < total and not self.stopped:
            yield self.epoch
            if not self.stopped:
                self._place.epoch_is_over()
                self._place.next_epoch()
        if not self.stopped:
            self.finish()

    def batches(
        self, *, epochs: Optional[int] = None, steps: Optional[int] = None
    ) -> Iterator[Any]:
        """The batches that are left: of this epoch, or until so many epochs or steps are done in
        all, after which the run is finished (see `finish`)."""
        if not self._is_restored:
            raise RuntimeError("call run.restore() before run.batches()")
        self._signals.listen()
        while not self._is_reached(epochs, steps):
            for batch in self._place.rest_of_epoch():
                yield batch
                if self.stopped:
                    return
                if steps is not None and self.steps_done >= steps:
                    break
            else:
                self._place.epoch_is_over()
            if epochs is None and steps is None:
                return
        self.finish()

    def _is_reached(self, epochs: Optional[int], steps: Optional[int]) -> bool:
        is_last = epochs is not None and self._place.epochs_done >= epochs
        return is_last or (steps is not None and self.steps_done >= steps)

    def step(self, *, loss: Any = None, grad_norm: Any = None, lr: Optional[float] = None) -> None:
        """A step of the optimizer is done (and of the scheduler): told, saved when that is due,
        and the end where all ranks agree on one. `loss` and `grad_norm`: numbers, or tensors with
        one element, which of a GPU are waited for. Raises `Stopped`, see `on_stop`."""
        self.steps_done += 1
        self._place.step_is_made()
        self._tell(telling.number(loss), telling.number(grad_norm), lr)
        asked = contract.read_stop(self._told.stop_file)
        heard = self._ranks.heard() or (False, False)
        if self.world == 1:
            heard = (bool(self._signals.asked), self._is_due())
        if asked is not None and self.steps_done >= asked.step:
            self._stop(asked.reason or "the stop file")
        elif heard[0]:
            self._stop(self._signals.asked or "a signal to another rank")
        else:
            if heard[1] or (self._every is not None and self.steps_done % self._every == 0):
                self.save()
            self._ranks.wish(bool(self._signals.asked), self._is_due())
        self._steps.ended()

    def _is_due(self) -> bool:
        """Rank 0's clock decides for all."""
        if self._every is not None or self.rank or not self._keeper.writer.idle:
            return False
        seconds = self._seconds or contract.read_interval(self._told) or _SECONDS_BETWEEN_SAVES
        return time.monotonic() - self._saved_at >= seconds

    def _tell(self, loss: Optional[float], norm: Optional[float], lr: Optional[float]) -> None:
        is_after_save = self._keeper.newest == self.steps_done - 1
        stall = self.costs.last_stall if is_after_save else 0.0
        known = lr if lr is not None else learning_rates.of(self._things.get("optimizer"))
        self._steps.made(
            step=self.steps_done,
            epoch=self.epoch,
            loss=loss,
            grad_norm=norm,
            lr=known,
            samples=self._place.samples,
            batch_hash=self._place.position.batch_hash(),
            save_stall_seconds=stall or None,
        )

    def save(self) -> None:
        """Begins a save of this moment, on every rank; `step` calls it when one is due."""
        before = self._place.samples_before_epoch()
        all_: dict[str, Any] = {
            "step": self.steps_done,
            **self._place.shared_state(),
            "torch_version": str(getattr(torch_or_none(), "__version__", "")),
            "rtj_trainer": {"samples_before": before, **self._size.state()},
        }
        if self._steps.loss is not None:
            all_["loss"] = self._steps.loss
        self._keeper.save(
            self.steps_done, things=self._things, own=self._place.own_state(), all_=all_
        )
        self._saved_at = time.monotonic()

    def finish(self) -> None:
        """The run is finished: its last step is saved, and everything is on the disk. Where it
        cannot be saved `.rtj_trainer/ended.json` says so, and under a supervisor, to whom code 0
        means the end of training, the process ends with 1 (raises `Stopped`)."""
        self._ranks.heard()
        is_saved = self._save_for_good()
        self._end("finished", reason="", is_saved=is_saved)
        self._signals.release()
        if not is_saved and self._told.attempt is not None:
            raise stopping.Stopped(1)

    def _end(self, how: str, *, reason: str, is_saved: bool) -> None:
        if self.rank == 0:
            self._lines.ended(how, step=self.steps_done, reason=reason, is_saved=is_saved)

    def _save_for_good(self) -> bool:
        """The newest step is on the disk; what fails is tried once more."""
        if self._keeper.newest != self.steps_done:
            self.save()
        if not self._keeper.wait():
            self.save()
        return self._keeper.wait()

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        is_saved = self._save_for_good()
        self._end("stopped", reason=reason, is_saved=is_saved)
        stopping.wait_to_be_asked(self._told, self._signals)
        if self._exits:
            raise stopping.Stopped(0 if is_saved else 1)
