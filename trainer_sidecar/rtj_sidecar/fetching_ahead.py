"""A spare's copy of the newest save, so that taking a rank moves few bytes or none.

Into the hidden directory that a restore looks into first, and which proves every file before it
uses it: a wrong guess costs traffic and nothing else. Must never touch the checkpoints themselves,
never take the room that a trainer will need, and never write to the store.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from rtj_api.contract import HIDDEN_DIR

from rtj_sidecar.checkpoints.budget import POD_VOLUME_SHARE
from rtj_sidecar.checkpoints.pins import disk_room
from rtj_sidecar.checkpoints.restore import incoming_dir
from rtj_sidecar.config import Site
from rtj_sidecar.report import Reporter
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.runs.records import FileRecord
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.base import Cancelled, StoreProblem, check_cancel

LOOK_SECONDS = 5.0
BACK_OFF_SECONDS = 30.0
STOP_SECONDS = 2.0

log = logging.getLogger("rtj.sidecar")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one look found. `name`: the save that is here now."""

    name: str | None
    bytes: int
    whole: bool = False  # nothing of it is one rank's own
    why: str | None = None


class FetchingAhead:
    """Asks the run's index, and fetches what every rank would have to."""

    def __init__(self, site: Site, reporter: Reporter, run: Run | None) -> None:
        self._site, self._reporter, self._run = site, reporter, run
        self._cancel = threading.Event()
        self._looking: asyncio.Future[_Seen] | None = None
        self.fetched_bytes = 0  # since this process began

    async def loop(self, is_touchable: Callable[[], bool]) -> None:
        """Until cancelled; `stop` ends what is on its way."""
        config, run = self._site.config, self._run
        if run is None or not config.pod_volume or config.store_url is None:
            return  # where the directory outlives the pod, or is others' too, all is there
        seen = _Seen(None, 0)
        while True:
            if is_touchable():
                self._looking = asyncio.ensure_future(asyncio.to_thread(self._look, run, seen))
                seen = await asyncio.shield(self._looking)
                view = self._reporter.current.standby
                if view is not None:
                    told = {
                        "name": seen.name,
                        "bytes": seen.bytes,
                        "whole": seen.whole,
                        "why": seen.why,
                    }
                    self._reporter.set(standby=view.model_copy(update=told))
            await asyncio.sleep(LOOK_SECONDS if seen.why is None else BACK_OFF_SECONDS)

    async def stop(self) -> None:
        """What came whole stays, and the restore goes on from it."""
        self._cancel.set()
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=STOP_SECONDS)

    # --- in a thread ---

    def _look(self, run: Run, seen: _Seen) -> _Seen:
        try:
            name = run.newest_told()
            if name is None or name == seen.name:
                return replace(seen, why=None)
            manifest = run.manifest(name)
            if manifest is None:
                return replace(seen, why=None)
            files = [file for file in manifest.files if file.ranks is None]
            found = self._fetch(run, seen, name, files)
            is_here = found.name == name
            whole = len(files) == len(manifest.files) if is_here else found.whole
            return replace(found, whole=whole)
        except (StoreProblem, Cancelled) as problem:
            return replace(seen, why=str(problem))
        except OSError as error:
            return replace(seen, why=f"{self._site.path}: {error}")

    def _fetch(self, run: Run, seen: _Seen, name: str, files: list[FileRecord]) -> _Seen:
        size, config, path = sum(file.size for file in files), self._site.config, self._site.path
        most, limit = config.max_restore_bytes, config.pod_volume_bytes
        if most is not None and size > most:
            text = f"{name}: {size:,} bytes, and checkpoint.local.maxRestoreBytes allows {most:,}"
            return replace(seen, why=text)
        if limit is not None and size > limit * POD_VOLUME_SHARE:
            return replace(seen, why=f"{name}: {size:,} bytes fill a volume of {limit:,}")
        dest = incoming_dir(path, name)
        dest.mkdir(parents=True, exist_ok=True)
        if not disk_room(path, largest_save=size, wanted=size).fits:
            self._remove_but(name)  # the one before it gives way first
            seen = _Seen(None, 0)
            if not disk_room(path, largest_save=size, wanted=size).fits:
                text = f"{name}: {size:,} bytes, and room for the next save, do not fit in {path}"
                return replace(seen, why=text)
        if files:
            found = run.moving.fetch(
                name, dest, files=files, progress=self._count, cancel=self._cancel
            )
            if not isinstance(found, Fetched):
                return replace(seen, why=found.message)
        self._remove_but(name)
        log.info("fetched ahead: %s, %d bytes", name, size)
        return _Seen(name, size)

    def _count(self, more: int) -> None:
        self.fetched_bytes += more

    def _remove_but(self, name: str) -> None:
        check_cancel(self._cancel)  # by now a restore may put its own there
        base = self._site.path / HIDDEN_DIR / "incoming"
        for place in base.iterdir():
            if place.name != name:
                shutil.rmtree(place, ignore_errors=True)
