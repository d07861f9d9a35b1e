"""Mirrors: this pod holds the newest saves of the gang whole, although others wrote them.

Then a crash costs nobody a transfer, and a lost pod is restored from its peers. Must never delay an
upload, and gives way first when the disk is short.
"""

from __future__ import annotations

import asyncio
import shutil
import time

from rtj_api.reasons import Reason

from rtj_sidecar.arrivals import adopt_fetched, begin_fetch, learn_hash
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.localsave import PinRecord
from rtj_sidecar.looking import Looking
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.runs.records import FileRecord, SaveFacts
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import Cancelled, StoreProblem

AUTO_SHARE = 0.5  # of the time between two saves that a mirror may take
KEY = "mirror"
BACK_OFF = 10.0


class Mirroring:
    """Fetches what this rank would have to fetch after a fault, before there is one."""

    def __init__(self, station: Station, looking: Looking, shipping: Shipping) -> None:
        self._at = station
        self._looking = looking
        self._shipping = shipping
        self._not_before = 0.0
        self._bytes_per_second: float | None = None

    async def loop(self) -> None:
        at = self._at
        if at.site.config.shared_directory:
            return
        while True:
            await asyncio.sleep(0.25)
            if time.monotonic() < self._not_before or not at.is_training:
                continue
            name = self._shipping.newest_durable
            # What this rank needs of it is known only once its manifest was read: its own pin may
            # be a share, such as one rank's RNG state.
            if name is None or self._is_known(name):
                continue
            if await self.mirror(name):
                at.reporter.heal(KEY)
            else:
                self._not_before = time.monotonic() + BACK_OFF

    def _is_known(self, name: str) -> bool:
        at = self._at
        never = at.site.config.mirror == "never"
        if at.directory.wanted(name) is None:
            return never and not at.directory.named(name)
        return never or at.directory.has_whole(name)

    async def mirror(self, name: str) -> bool:
        """Make this pod hold all that it would restore of `name`. False: not now."""
        at = self._at
        run = at.run
        if run is None:
            return False
        try:
            wanted = await asyncio.to_thread(run.wanted, name)
            manifest = await asyncio.to_thread(run.manifest, name)
            if not wanted or manifest is None:
                return False
            own = at.directory.named(name)
            for save in own:
                await at.on_disk(at.directory.update, save, wanted=list(wanted))
            missing = self._missing(name, wanted)
            if not missing or at.site.config.mirror == "never":
                at.reporter.heal(KEY)
                self._looking.tell()
                return True
            if not self._is_worth(sum(file.size for file in missing)):
                return False
            facts = SaveFacts(
                root_key=manifest.root_key,
                layout=manifest.layout,
                step=manifest.step,
                epoch=manifest.epoch,
                loss=manifest.loss,
                full_state=manifest.full_state,
                status=manifest.status,
                facts=manifest.facts,
            )
            return await self._fetch(name, missing, wanted=list(wanted), facts=facts)
        except (StoreProblem, Cancelled) as problem:
            log.info("mirror of %s: %s", name, problem)
            return False
        except DirectoryProblem as problem:
            at.reporter.degrade(KEY, problem.reason, problem.message)
            return False

    def _missing(self, name: str, wanted: list[FileRecord]) -> list[FileRecord]:
        have = {(f.path, f.stamp.size) for s in self._at.directory.named(name) for f in s.pin.files}
        return [file for file in wanted if (file.path, file.size) not in have]

    def _is_worth(self, size: int) -> bool:
        """Policy `auto`: only while a mirror takes well under the time between two saves."""
        at = self._at
        if at.site.config.mirror == "always":
            return True
        interval = at.reporter.current.checkpoint.interval_seconds
        if self._bytes_per_second is None or interval is None:
            return True  # nothing is known yet: the first one is the measurement
        return size / self._bytes_per_second < AUTO_SHARE * interval

    async def _fetch(
        self, name: str, missing: list[FileRecord], *, wanted: list[FileRecord], facts: SaveFacts
    ) -> bool:
        at, run = self._at, self._at.run
        if run is None:
            return False
        pin = f"m-{name}"
        size = sum(file.size for file in missing)
        dest = await at.on_disk(begin_fetch, at.directory, pin, wanted=size)
        peers = [at.holder_url] if at.holder_url else []
        begun = time.monotonic()
        found = await asyncio.to_thread(
            run.moving.fetch,
            name,
            dest,
            files=missing,
            peers=peers,
            cancel=at.closing,
        )
        if not isinstance(found, Fetched):
            await at.on_disk(shutil.rmtree, dest.parent, ignore_errors=True)
            if found.reason in (Reason.DISK_FULL, Reason.DIRECTORY_READ_ONLY):
                at.reporter.degrade(KEY, found.reason, found.message)
            else:
                log.warning("mirror of %s: %s", name, found.message)
            return False
        at.moved(from_peers=found.bytes_from_peers, from_store=found.bytes_from_store)
        moved = found.bytes_from_peers + found.bytes_from_store
        self._bytes_per_second = max(1.0, moved / max(0.001, time.monotonic() - begun))
        record = PinRecord(
            run_id=at.site.config.run_id,
            attempt=at.attempt,
            ordinal=at.directory.next_ordinal(),
            facts=facts,
            seen_at=time.time(),
            name=name,
            durable=True,
            wanted=wanted,
            mirror=True,
        )
        await at.on_disk(adopt_fetched, at.directory, record, pin=pin)
        hashes = {file.path: file.sha256 for file in missing}
        for path, digest in hashes.items():
            await at.on_disk(learn_hash, at.directory, dest / path, digest)
        log.info("mirrored %s, %d bytes", name, moved)
        await self._shipping.fates.trim()
        self._looking.tell()
        at.ship_now.set()
        return True
