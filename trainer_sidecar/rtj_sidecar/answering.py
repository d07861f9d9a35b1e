"""What this agent answers its peers and its probe: see `server.Peers`.

Must never give out anything but whole pins, and never name a save where another rank holds.
"""

from __future__ import annotations

import time

from rtj_sidecar.hearing import Hearing
from rtj_sidecar.holding import Holding
from rtj_sidecar.messages import PeerFile, PeerSave, Seen, Ships
from rtj_sidecar.server import PinnedFile
from rtj_sidecar.station import Station

WELL_SECONDS = 30.0


class Answering:
    """`holding` only on rank 0."""

    def __init__(self, station: Station, hearing: Hearing, holding: Holding | None) -> None:
        self._at = station
        self._hearing = hearing
        self._holding = holding

    def is_well(self) -> bool:
        return time.monotonic() - self._hearing.ticked < WELL_SECONDS

    def told(self, body: bytes, *, signature: str) -> None:
        self._hearing.told(body, signature=signature)

    async def ships(self, *, since: int | None, wait: float) -> Ships:
        if self._holding is None:
            return Ships(version=0)
        return await self._holding.list.ships(since=since, wait=wait)

    async def heard(self, seen: Seen) -> None:
        if self._holding is None:
            raise ValueError("rank 0 names the saves: ask it")
        self._holding.hear(seen)

    def pinned_file(self, name: str, path: str) -> PinnedFile | None:
        found = self._at.directory.pinned(name, path)
        return PinnedFile(*found) if found is not None else None

    async def describe(self, name: str) -> PeerSave | None:
        at = self._at
        saves = at.directory.named(name)
        if not saves:
            return None
        hashes = await at.on_disk(at.directory.hashes, name)
        if any(file.path not in hashes for save in saves for file in save.pin.files):
            return None  # A pin that was changed: what is left of it is not what was saved.
        files = [PeerFile(path=p, size=s, sha256=h, mode=m) for p, (s, h, m) in hashes.items()]
        return PeerSave(name=name, facts=saves[0].record.facts, files=files)
