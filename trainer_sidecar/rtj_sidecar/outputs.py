"""Ships what a successful trainer left beside its checkpoints, before anybody calls it complete.

Only after an end with code 0 that nobody asked for. Must never let this pod count as drained while
an output is only on its disk, and never ship a half-written file: it runs after the trainer ended.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rtj_api.reasons import Reason
from rtj_api.wire import TrainerView

from rtj_sidecar.checkpoints.products import products
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.scan import walk
from rtj_sidecar.checkpoints.types import FileEntry
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import Cancelled, SourceChanged, StoreProblem

KEY, MISSING_KEY = "outputs", "outputs-missing"
MIN_BACK_OFF, MAX_BACK_OFF = 1.0, 30.0


class Outputs:
    """One rank's outputs."""

    def __init__(self, station: Station) -> None:
        self._at = station

    def is_due(self) -> bool:
        """Whether this attempt's trainer succeeded here and its outputs are not in the store."""
        at = self._at
        if at.run is None or not at.site.touches_directory or at.supervisor is None:
            return False
        trainer = at.supervisor.trainer
        mine = trainer.attempt == at.attempt and at.journal.entry.outputs_attempt < at.attempt
        return mine and has_succeeded(trainer) and not at.reporter.current.terminating

    async def ship(self, *, fence: int | None) -> None:
        """Until they are in the store, or the attempt is another. `fence`: the run's, now."""
        at, back_off, attempt = self._at, MIN_BACK_OFF, self._at.attempt
        while self.is_due() and at.attempt == attempt:
            if fence is None or at.run is None:
                return  # nobody has told it yet: the caller comes again
            try:
                files = await at.on_disk(self._files)
                done = await asyncio.to_thread(
                    at.run.moving.put_outputs,
                    fence=fence,
                    attempt=attempt,
                    files=files,
                    progress=lambda count: at.moved(uploaded=count),
                    cancel=at.closing,
                )
            except Cancelled:
                return
            except (StoreProblem, DirectoryProblem) as problem:
                at.reporter.degrade(KEY, problem.reason, f"outputs: {problem.message}")
            except (SourceChanged, OSError) as problem:
                at.reporter.degrade(KEY, Reason.CHECKPOINT_TORN, f"outputs: {problem}")
            else:
                log.info("outputs: %d files below outputs/f%d/", len(done.files), fence)
                at.journal.note(outputs_attempt=attempt)
                at.reporter.heal(KEY)
                return
            await asyncio.sleep(back_off)
            back_off = min(MAX_BACK_OFF, 2 * back_off)

    def _files(self) -> list[LocalFile]:
        directory = self._at.directory
        look = directory.look(writers=Writers(gone=True))
        entries = products(look.snapshot, foreign=directory.ledger.foreign)
        last = directory.ledger.last_not_durable(look.snapshot)
        if last is not None:
            # Of this rank alone, or dropped: no save that anybody begins from, and not to be lost.
            log.info("outputs: with %s, which did not become durable", last.root_key)
            entries = (*entries, *last.all_files)
        files = {e.path: _local(directory.path, e, below="") for e in entries}
        missing = []
        for path in self._at.site.config.outputs:
            named = _named(Path(path), root=directory.path)
            files |= {file.path: file for file in named}
            missing += [path] if not named else []
        if missing:
            self._at.reporter.degrade(
                MISSING_KEY,
                Reason.OUTPUT_MISSING,
                f"rank {self._at.site.config.rank}: {', '.join(missing)} of spec.outputs holds no "
                "file: nothing of it was shipped. Correct spec.outputs, or see the trainer's log",
                retrying=False,
            )
        return list(files.values())


def _named(path: Path, *, root: Path) -> list[LocalFile]:
    """The files at or below an absolute path; in the store without the leading slash, or relative
    to the checkpoint directory where they lie in it."""
    base = path if path.is_dir() else path.parent
    only = None if path.is_dir() else path.name
    below = base.relative_to(root) if base.is_relative_to(root) else base.relative_to("/")
    entries = walk(base, only=only)[0] if base.is_dir() else ()
    return [_local(base, entry, below=below.as_posix()) for entry in entries]


def _local(base: Path, entry: FileEntry, *, below: str) -> LocalFile:
    path = f"{below}/{entry.path}" if below not in ("", ".") else entry.path
    return LocalFile(path=path, source=base / entry.path, size=entry.size, mode=entry.mode)


def has_succeeded(trainer: TrainerView) -> bool:
    return trainer.exit_code == 0 and not trainer.asked_to_stop and not trainer.container_restarted
