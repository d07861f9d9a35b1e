"""What a new pod will most likely have to restore comes to its disk while nothing is chosen yet.

Into the hidden directory that a restore looks into first, so a wrong guess costs only traffic. Must
never touch the checkpoints themselves, and never go on beside a restore.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading

from rtj_api.wire import Phase

from rtj_sidecar.checkpoints.restore import incoming_dir
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.mirroring import Mirroring
from rtj_sidecar.room import make_room
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.runs.run import Run
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import Cancelled, StoreProblem

LOOK_SECONDS = 0.1


class Prefetching:
    """Not on rank 0, which fetches what it proves; not where the directory is shared."""

    def __init__(self, station: Station, shipping: Shipping, mirroring: Mirroring) -> None:
        self._at = station
        self._shipping = shipping
        self._mirroring = mirroring
        self._fetching: asyncio.Task[None] | None = None
        self._cancel = threading.Event()
        self._tried: set[tuple[int, str]] = set()  # attempt, save

    async def loop(self) -> None:
        at = self._at
        if at.site.holds or at.site.config.shared_directory:
            return
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            directive, name, run = at.directive, self._shipping.newest_durable, at.run
            waits = directive is not None and directive.phase is Phase.PREPARE and at.settled
            if directive is None or run is None or name is None or not waits:
                continue
            if self._fetching is not None or (directive.attempt, name) in self._tried:
                continue
            self._tried.add((directive.attempt, name))
            if not at.directory.has_whole(name):
                self._cancel = threading.Event()
                self._fetching = asyncio.create_task(self._fetch(run, name), name=name)

    async def settle(self, name: str | None) -> None:
        """Before a restore: wait where that save is being fetched, else end what is."""
        at, fetching = self._at, self._fetching
        if fetching is None:
            return
        if fetching.get_name() != name:
            self._cancel.set()
        await asyncio.wait({fetching})
        self._fetching = None
        if fetching.get_name() != name:
            wrong = incoming_dir(at.site.path, fetching.get_name())
            await at.on_disk(shutil.rmtree, wrong, ignore_errors=True)

    def stop(self) -> None:
        self._cancel.set()

    async def _fetch(self, run: Run, name: str) -> None:
        """Trouble is left to the restore, which tells of it."""
        at = self._at
        dest = incoming_dir(at.site.path, name)
        with contextlib.suppress(StoreProblem, Cancelled, DirectoryProblem, OSError):
            wanted = await asyncio.to_thread(run.suiting.wanted, name)
            missing = self._mirroring.missing(name, wanted)
            most = at.site.config.max_restore_bytes
            if not missing or (most is not None and sum(f.size for f in missing) > most):
                return  # a restore that may not be is told by the restore
            await at.on_disk(make_room, at.directory, sum(file.size for file in missing))
            await at.on_disk(dest.mkdir, parents=True, exist_ok=True)
            peers, _ = await self._mirroring.peers(name)
            found = await asyncio.to_thread(
                run.moving.fetch,
                name,
                dest,
                files=missing,
                peers=peers,
                progress=at.fetched,
                cancel=self._cancel,
            )
            if isinstance(found, Fetched):
                at.moved(from_peers=found.bytes_from_peers, from_store=found.bytes_from_store)
                log.info("fetched ahead: %s, %d files", name, found.files)
