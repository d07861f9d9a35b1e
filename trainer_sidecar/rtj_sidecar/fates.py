"""What became of this rank's saves, remembered beside their pins, and which pins are kept.

Must never drop a pin that is not durable yet, or that the attempt was started from.
"""

from __future__ import annotations

import time

from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.localsave import LocalSave
from rtj_sidecar.looking import Looking
from rtj_sidecar.messages import Ships
from rtj_sidecar.runs.keys import parse_name
from rtj_sidecar.runs.records import ShipRecord
from rtj_sidecar.station import Station

DURABLE_PINS_KEPT = 2
DIRECTORY_KEY = "directory"


class Fates:
    """Belongs to the event loop's thread."""

    def __init__(self, station: Station, looking: Looking) -> None:
        self._at = station
        self._looking = looking

    async def learn(self, ships: Ships) -> None:
        """What the holder says became of them."""
        at = self._at
        durable, dropped, skipped = set(ships.durable), set(ships.dropped), set(ships.skipped)
        ignored, changed = set(ships.ignored), False
        # First: as soon as no save is pending this pod is drained, and must say what is durable.
        newest = newest_durable(ships)
        if newest is not None and newest != at.journal.entry.last_durable_name:
            changed = True
            self._note_durable(newest)
        for save in at.directory.saves:
            record = save.record
            if record.name in durable and not record.durable:
                changed = True
                await self.remember(save, durable=True, over=None)
                await at.on_disk(at.directory.ledger.note_durable, save)
            elif record.name in dropped and not record.over and not record.durable:
                changed = True
                await self.remember(save, over="the holder dropped it")
            elif save.pin.fingerprint in ignored and not record.over:
                changed = True
                await at.on_disk(at.directory.ledger.disown, save)
                await self.remember(save, over="its trainer had not loaded what it was given")
            elif record.name is None and save.pin.fingerprint in skipped and not record.over:
                changed = True
                await self.remember(save, over="a newer save went first")
        if changed:
            await self.trim()
            self._looking.tell()

    def _note_durable(self, name: str) -> None:
        at = self._at
        step = next((c.step for c in at.candidates if c.name == name), None)
        if step is None:
            step = next((s.record.facts.step for s in at.directory.named(name)), None)
        at.journal.note(last_durable_name=name, last_durable_step=step, last_durable_at=time.time())

    async def trim(self) -> None:
        """Drop pins that nobody needs: what is over, and durable ones beyond the newest few. What
        the volume does not let go is told, and is dropped another time."""
        at = self._at
        if at.overtaken:
            return
        resume = at.journal.entry.resume
        in_use = {resume.name} if resume is not None else set()
        durable = [s for s in at.directory.saves if s.record.durable]
        count = at.site.config.keep_local or DURABLE_PINS_KEPT
        kept = {s.record.name for s in durable[-count:]}
        names = list(dict.fromkeys(s.record.name for s in durable))
        kept |= set(names[-count:])
        for save in at.directory.saves:
            record = save.record
            spare = record.durable and record.name not in kept | in_use
            if spare or (record.over and record.name not in in_use):
                try:
                    await at.on_disk(at.directory.drop, save)
                except DirectoryProblem as problem:
                    at.reporter.degrade(DIRECTORY_KEY, problem.reason, problem.message)
                    return
                at.reporter.heal(DIRECTORY_KEY)

    async def bear(self, local: LocalSave, ship: ShipRecord) -> LocalSave:
        if local.record.name == ship.name:
            return local
        directory, rank = self._at.directory, self._at.site.config.rank
        local = await self.remember(
            local,
            name=ship.name,
            fence=ship.fence,
            n=ship.n,
            alone=directory.is_alone(local, ship, rank=rank),
        )
        self._looking.tell()
        return local

    async def remember(self, save: LocalSave, **changes: object) -> LocalSave:
        at = self._at
        try:
            known = await at.on_disk(at.directory.update, save, **changes)
        except DirectoryProblem as problem:
            at.reporter.degrade(DIRECTORY_KEY, problem.reason, problem.message)
            return save
        at.reporter.heal(DIRECTORY_KEY)
        return known


def newest_durable(ships: Ships) -> str | None:
    """By its place in the run: of two on their way the newer one is often committed first."""
    return max(set(ships.durable) - set(ships.left), key=_place, default=None)


def _place(name: str) -> tuple[int, int]:
    save = parse_name(name)
    return (save.fence, save.n) if save is not None else (0, 0)
