"""From a step to a save on the disk: who writes what, what it costs, which older ones go.

One file of rank 0 with the random states and data positions of all ranks; or, where the model is
sharded, a directory that every rank writes its part of. Every rank calls `save` at the same step.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from rtj_trainer import files, sharded
from rtj_trainer.contract import is_first_of_machine
from rtj_trainer.ranks import Ranks
from rtj_trainer.registered import not_plain, own_states_of, states_of
from rtj_trainer.snapshot import Snapshot
from rtj_trainer.writing import Writer

log = logging.getLogger("rtj_trainer")


class Keeper:
    """Saves of one run below `directory`; the newest `keep` stay."""

    def __init__(self, directory: Path, *, ranks: Ranks, keep: int, trusted: bool) -> None:
        self._directory, self._ranks, self._keep = directory, ranks, keep
        self._trusted = trusted
        self._snapshot = Snapshot()
        self._writers_group: Any = None
        self.writer = Writer()
        self.spared: Optional[Path] = None  # what the run was resumed from
        self.newest: Optional[int] = None  # the step of the save that was begun last

    def check(self, things: Mapping[str, Any]) -> None:
        """Raises TypeError for a state that could not be loaded again, before a step is made."""
        sharded.check(things)
        if self._trusted or sharded.is_sharded(things.get("model")):
            return
        _check_plain(states_of(things))

    def save(
        self, step: int, *, things: Mapping[str, Any], own: Mapping[str, Any], all_: dict[str, Any]
    ) -> None:
        """Begins a save of this moment. `own`: what each rank has for itself; `all_`: what is the
        same on all of them. An error of the disk is told and counted, and raises nothing."""
        began = time.monotonic()
        self.writer.wait()
        name = f"step {step}"
        self.newest = step
        if self._ranks.world > 1:
            own = {**own, "kept": own_states_of(things)}
        if sharded.is_sharded(things.get("model")):
            self._sharded(step, name, things, own, all_)
        else:
            gathered = self._ranks.gathered(dict(own))
            if gathered is not None:
                each = {key: [one[key] for one in gathered] for key in own}
                self._whole(step, name, {**states_of(things), **each, **all_})
        self.writer.stalled(time.monotonic() - began)

    def wait(self) -> bool:
        """Until the save that was begun has ended; whether it is whole on every rank."""
        self.writer.wait()
        return not any(self._ranks.everyone(self.writer.is_failed))

    def _whole(self, step: int, name: str, state: dict[str, Any]) -> None:
        path = files.path_of(self._directory, step)
        try:
            copied = self._snapshot.filled(state)
        except (MemoryError, RuntimeError) as error:
            self.writer.fail(name, error)
            return
        self.writer.begin(name, lambda: self._written(path, copied, step))

    def _written(self, path: Path, copied: Any, step: int) -> int:
        if not self._trusted:
            # A value may have become one that cannot be loaded since the first look.
            _check_plain(copied)
        size = files.write(path, copied)
        self._clean(step)
        return size

    def _sharded(
        self, step: int, name: str, things: Mapping[str, Any], own: Any, all_: dict[str, Any]
    ) -> None:
        path = files.path_of(self._directory, step, is_sharded=True)
        if path == self.spared:
            log.info("%s is the save that this run goes on from: it is not written again", name)
            return
        if self._writers_group is None:
            self._writers_group = self._ranks.another_group()
        rank = self._ranks.rank
        state: dict[str, Any] = {}

        def prepare() -> None:
            state.update(sharded.state_of(things, extras={**own, **all_}, rank=rank))

        def unmark() -> None:
            if rank == 0:
                files.unmark(path)

        # Before anyone writes: nobody waits in DCP for a rank that is not there, and what is
        # written over is marked as finished no longer.
        if not (self._all(prepare, name=name) and self._all(unmark, name=name)):
            return
        try:
            wait = sharded.begin(path, state, rank=rank, group=self._writers_group)
        except Exception as error:
            self.writer.fail(name, error)
            return

        def finished() -> int:
            size = wait()
            # A machine with a directory of its own has only shards in it, and no mark.
            is_shared = files.is_finished(path)
            if rank == 0 or (is_first_of_machine() and not is_shared):
                self._clean(step, by_mark=is_shared)
            return size

        self.writer.begin(name, finished)

    def _all(self, do: Callable[[], None], *, name: str) -> bool:
        """Every rank did it, or the save has failed on every rank."""
        problem = ""
        try:
            do()
        except Exception as error:
            problem = f"rank {self._ranks.rank}: {type(error).__name__}: {error}"
        problems = [said for said in self._ranks.everyone(problem) if said]
        if problems:
            self.writer.fail(name, RuntimeError("; ".join(problems)))
        return not problems

    def _clean(self, step: int, *, by_mark: bool = True) -> None:
        # What cannot be removed costs room and nothing else.
        with contextlib.suppress(OSError):
            files.remove_older(
                self._directory,
                newest=step,
                keep=self._keep,
                spare=self.spared,
                by_mark=by_mark,
            )
        if self._ranks.rank == 0:
            files.remove_begun(self._directory)
        if self.spared is not None and self.spared != files.path_of(self._directory, step):
            self.spared = None


def _check_plain(states: Any) -> None:
    found = not_plain(states)
    if found:
        raise TypeError(
            f"{found.lstrip('.')} can only be loaded again by executing what is in the save. "
            "Leave it out of that state_dict, or, if you trust your saves: "
            "Run(..., trusted=True)"
        )
