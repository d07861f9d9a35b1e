"""What a restore has to bring to this disk: by the pins, the manifest, or the word of peers.

Must never name a file without the hash it must have, and never take a save for whole when a rank
that wrote files of it is silent and it is not durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from functools import partial

from aiohttp import ClientError, ClientTimeout
from pydantic import ValidationError
from rtj_api import contract
from rtj_api.wire import Resume

from rtj_sidecar.checkpoints.restore import RestoreError
from rtj_sidecar.messages import PeerSave
from rtj_sidecar.restoring import Target, target_from_pins
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.records import FileRecord, SaveFacts
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem

PEER_SECONDS = 8.0
CARRIED_SECONDS = 5.0


class Targets:
    """Asks; moves no byte. Belongs to the event loop's thread."""

    def __init__(self, station: Station) -> None:
        self._at = station

    async def find(self, resume: Resume, name: str) -> Target:
        """Raises RestoreError where nobody can tell."""
        target = await self._at.on_disk(target_from_pins, self._at.directory, name)
        if target is None:
            target = await self._elsewhere(resume, name)
        return await self._with_carried(target)

    async def _with_carried(self, target: Target) -> Target:
        """With what lay beside it under a fixed name, where it is not here. What the store does
        not tell in time is left out and told: the save itself is whole without it."""
        at, run, found = self._at, self._at.run, []
        taken = {file.path for file in target.files}
        for told in target.facts.facts.get("carried") or ():
            if told["path"] in taken or await at.on_disk(at.directory.ledger.has_carried, told):
                continue
            name = keys.save_name(keys.SaveId(told["fence"], told["n"]), told["step"])
            files: list[FileRecord] = []
            if run is not None:
                with contextlib.suppress(StoreProblem, TimeoutError):
                    asked = asyncio.to_thread(run.suiting.wanted, name)
                    files = await asyncio.wait_for(asked, CARRIED_SECONDS)
            here = [file for file in files if file.path == told["path"]]
            if not here:
                log.warning("%s of %s is not brought back: nobody tells it", told["path"], name)
            found += here
        return replace(target, carried=tuple(found))

    async def _elsewhere(self, resume: Resume, name: str) -> Target:
        """What has to be restored, by the manifest, or by the peers where there is none yet.

        Asked again for a while: a save that was not durable when it was chosen may be by now, and
        a peer that wrote files of it may hear a moment later how it is called.
        """
        deadline, why = time.monotonic() + PEER_SECONDS, ""
        # The store is asked first only for what it has to have: it may be away.
        ways = [partial(self._by_manifest, name), partial(self._by_peers, resume, name)]
        if not resume.durable:
            ways.reverse()
        while True:
            for way in ways:
                try:
                    if target := await way():
                        return target
                except StoreProblem as problem:
                    why = problem.message
                except RestoreError as problem:
                    why = str(problem)
            if time.monotonic() > deadline:
                raise RestoreError(why)
            await asyncio.sleep(0.5)

    async def _by_manifest(self, name: str) -> Target | None:
        """Of a committed save. Raises StoreProblem."""
        run = self._at.run
        manifest = await asyncio.to_thread(run.manifest, name) if run is not None else None
        if run is None or manifest is None:
            return None
        wanted = await asyncio.to_thread(run.suiting.wanted, name)
        whole = SaveFacts.model_validate(manifest.model_dump())
        return Target(name, whole, tuple(wanted), durable=True)

    async def _by_peers(self, resume: Resume, name: str) -> Target:
        at = self._at
        files: dict[str, FileRecord] = {}
        facts: SaveFacts | None = None
        local = at.directory.named(name)
        if local:
            # Where ranks wrote other bytes under one name, each gets its own back.
            for path, found in (await at.on_disk(at.directory.hashes, name)).items():
                files[path] = _record_of(path, *found)
        for peer in resume.peers:
            told = await self.ask_peer(peer.rstrip("/"), name)
            if told is None and not resume.durable:
                raise RestoreError(
                    f"{name} is not durable, and {peer}, which has files of it, does not answer: "
                    "without it nobody knows that the save is whole"
                )
            if told is None:
                continue
            facts = facts or told.facts
            for file in told.files:
                found = _record_of(file.path, file.size, file.sha256, file.mode)
                files.setdefault(file.path, found)
        if local:
            facts = facts or local[0].record.facts
        if facts is None or not files:
            raise RestoreError(
                f"{name} is not on this disk, no peer has it, and it has no manifest"
            )
        return Target(name, facts, tuple(files.values()), durable=False)

    async def ask_peer(self, peer: str, name: str) -> PeerSave | None:
        """None where it has not the save, or does not answer."""
        try:
            async with self._at.http.get(
                f"{peer}{contract.PATH_SAVES}/{name}",
                timeout=ClientTimeout(total=120, connect=3),
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    return None
                return PeerSave.model_validate_json(await answer.read())
        except (ClientError, TimeoutError, OSError, ValidationError):
            return None


def _record_of(path: str, size: int, sha256: str, mode: int) -> FileRecord:
    return FileRecord(path=path, key="", size=size, sha256=sha256, crc64nvme="", mode=mode)
