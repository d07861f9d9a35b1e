"""Mirrors: this pod holds the newest saves of the gang whole, although others wrote them.

Then a crash costs nobody a transfer, and a lost pod is restored from its peers. Must never delay an
upload, and gives way first when the disk is short.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence

from rtj_api.reasons import Reason
from rtj_api.wire import MirrorView, TransferKind

from rtj_sidecar.arrivals import adopt_fetched, begin_fetch, learn_hash
from rtj_sidecar.checkpoints.pins import disk_room
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.localsave import PinRecord
from rtj_sidecar.looking import Looking
from rtj_sidecar.mirror_policy import MirrorFacts, Weighed, weigh
from rtj_sidecar.needing import Needing
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.runs.peers import Peers
from rtj_sidecar.runs.records import FileRecord, ManifestRecord, SaveFacts
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.sources import find_peers
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import Cancelled, StoreProblem

KEY = "mirror"
BACK_OFF = 10.0


class Mirroring:
    """Fetches what this rank would have to fetch after a fault, before there is one."""

    def __init__(self, station: Station, looking: Looking, shipping: Shipping) -> None:
        self._at = station
        self._looking = looking
        self._shipping = shipping
        self._needing = Needing(station)
        self._weighed = ""  # the newest save that this disk was measured by
        self._not_before = 0.0
        self._bytes_per_second: float | None = None

    async def loop(self) -> None:
        at = self._at
        if at.site.config.shared_directory:
            return
        while True:
            await asyncio.sleep(0.25)
            self._needing.look(self._shipping.ships)
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
            return never and not at.directory.named(name) and self._weighed == name
        return never or at.directory.has_whole(name)

    async def mirror(self, name: str) -> bool:
        """Make this pod hold all that it would restore of `name`. False: not now."""
        at = self._at
        run = at.run
        if run is None:
            return False
        try:
            wanted = await asyncio.to_thread(run.suiting.wanted, name)
            manifest = await asyncio.to_thread(run.manifest, name)
            if not wanted or manifest is None:
                return False
            await self._needing.weigh(name, wanted)
            self._weighed = name
            own = at.directory.named(name)
            for save in own:
                await at.on_disk(
                    at.directory.update,
                    save,
                    wanted=list(wanted),
                    wanted_for=self._place(wanted, manifest),
                )
            missing = self.missing(name, wanted)
            size = sum(file.size for file in missing)
            self._tell(name=name, is_whole=not missing, missing_bytes=size)
            if not missing or at.site.config.mirror == "never":
                at.reporter.heal(KEY)
                self._looking.tell()
                return True
            peers, sources = await self.peers(name)
            weighed = await self._weigh(size, sources=sources)
            self._tell(name=name, why=weighed.why, is_fetching=weighed.is_worth)
            if not weighed.is_worth:
                if self._bytes_per_second is not None:
                    self._bytes_per_second *= 2  # one bad moment is measured anew, later
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
            return await self._fetch(
                name,
                missing,
                peers,
                wanted=list(wanted),
                wanted_for=self._place(wanted, manifest),
                facts=facts,
            )
        except (StoreProblem, Cancelled) as problem:
            log.info("mirror of %s: %s", name, problem)
            return False
        except DirectoryProblem as problem:
            at.reporter.degrade(KEY, problem.reason, problem.message)
            return False
        finally:
            self._tell(name=name, is_fetching=False)

    def _place(self, wanted: Sequence[FileRecord], manifest: ManifestRecord) -> str | None:
        """Whom a list is for that holds less than everybody gets."""
        common = sum(file.ranks is None for file in manifest.files)
        is_less = sum(file.ranks is None for file in wanted) < common
        return self._at.directory.place if is_less else None

    def missing(self, name: str, wanted: Sequence[FileRecord]) -> list[FileRecord]:
        """Of what this rank has to restore, what no pin here holds."""
        have = {(f.path, f.stamp.size) for s in self._at.directory.named(name) for f in s.pin.files}
        return [file for file in wanted if (file.path, file.size) not in have]

    async def peers(self, name: str) -> tuple[Peers, int]:
        """Who has which files of it, and how many have some."""
        at = self._at
        urls = await self._shipping.holders(name)
        return await find_peers(at.http, name, urls, rank=at.site.config.rank), len(urls)

    async def _weigh(self, size: int, *, sources: int) -> Weighed:
        at = self._at
        directive, directory = at.directive, at.directory
        size_of_gang = directive.world_size if directive is not None else 1
        largest = directory.sight.largest
        room = await at.on_disk(disk_room, at.site.path, largest_save=largest, wanted=size)
        older = sum(save.bytes for save in directory.saves if save.record.mirror)
        return weigh(
            MirrorFacts(
                policy=at.site.config.mirror,
                size=size,
                takers=max(1, size_of_gang - 1),
                sources=max(1, sources),
                free=room.free + older,  # older mirrors give way
                reserve=room.reserve,
                is_uploading=self._shipping.uploading.is_busy,
                rate=self._bytes_per_second,
                interval=at.reporter.current.checkpoint.interval_seconds,
            )
        )

    def _tell(self, **changes: object) -> None:
        """What the report says of it."""
        at = self._at
        view = at.reporter.current.mirror or MirrorView(policy=at.site.config.mirror)
        if changes.get("name", view.name) != view.name:
            view = MirrorView(policy=at.site.config.mirror)
        at.reporter.set(mirror=view.model_copy(update=changes))

    async def _fetch(
        self,
        name: str,
        missing: list[FileRecord],
        peers: Peers,
        *,
        wanted: list[FileRecord],
        wanted_for: str | None,
        facts: SaveFacts,
    ) -> bool:
        at, run = self._at, self._at.run
        if run is None:
            return False
        pin = f"m-{name}"
        size = sum(file.size for file in missing)
        dest = await at.on_disk(begin_fetch, at.directory, pin, wanted=size)
        begun = time.monotonic()
        with at.transfers.under_way(TransferKind.MIRROR, name, size) as count:
            found = await asyncio.to_thread(
                run.moving.fetch,
                name,
                dest,
                files=missing,
                peers=peers,
                progress=count,
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
            wanted_for=wanted_for,
            mirror=True,
        )
        await at.on_disk(adopt_fetched, at.directory, record, pin=pin)
        hashes = {file.path: file.sha256 for file in missing}
        for path, digest in hashes.items():
            await at.on_disk(learn_hash, at.directory, dest / path, digest)
        self._tell(
            name=name,
            is_whole=True,
            missing_bytes=0,
            fetched_bytes=moved,
            from_peers=found.bytes_from_peers,
            from_store=found.bytes_from_store,
        )
        log.info("mirrored %s, %d bytes", name, moved)
        await self._shipping.fates.trim()
        self._looking.tell()
        at.ship_now.set()
        return True
