"""Every rank's part: it tells the holder what it saw finish and uploads what the holder names.

Uploads come from pins only. Must never answer "none" while its own files of that save may still be
on their way, and never send a file that is not the one that was judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

from aiohttp import ClientError, ClientTimeout
from pydantic import ValidationError
from rtj_api import contract

from rtj_sidecar.arrivals import learn_hash
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.holding import Holding
from rtj_sidecar.localsave import LocalSave
from rtj_sidecar.looking import Looking
from rtj_sidecar.messages import OpenShip, Seen, SeenSave, Ships
from rtj_sidecar.runs.keys import parse_name
from rtj_sidecar.runs.records import PartRecord, ShipRecord
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import Cancelled, SourceChanged, StoreProblem

POLL_SECONDS = 25.0
FALLBACK_SECONDS = 15.0
TELL_SECONDS = 2.0
MIN_BACK_OFF, MAX_BACK_OFF = 1.0, 30.0
DURABLE_PINS_KEPT = 2
KEY = "upload"
DIRECTORY_KEY = "directory"


class Shipping:
    """`holding` only on rank 0."""

    def __init__(self, station: Station, looking: Looking, holding: Holding | None) -> None:
        self._at = station
        self._looking = looking
        self._holding = holding
        self._ships = Ships(version=0)
        self._heard_at: dict[str, float] = {}  # when this rank heard of a ship it has no files of
        self._answered: set[str] = set()
        self._back_off = MIN_BACK_OFF
        self._not_before = 0.0  # monotonic: the store has a moment's rest
        self._told: Seen | None = None
        self._told_at = 0.0
        self.cancel = threading.Event()

    @property
    def newest_durable(self) -> str | None:
        """By its place in the run: of two on their way the newer one is often committed first."""
        ships = self._ships
        return max(set(ships.durable) - set(ships.left), key=_place, default=None)

    @property
    def fence(self) -> int | None:
        """The run's, as this rank knows it."""
        return self._at.fence if self._holding is not None else self._ships.fence

    def is_drained(self) -> bool:
        """Whether nothing that finished here would be lost with this pod."""
        at = self._at
        if at.run is None or at.overtaken:
            return True  # whoever has a shared directory now finds the pins in it
        if not at.settled or self._looking.may_find_more:
            return False
        pending = [save for save in at.directory.saves if save.is_pending]
        if self._holding is not None:
            return not pending and self._holding.is_idle()
        if at.reporter.current.terminating:
            # Whoever holds the fence can commit it without this pod.
            return all(save.record.part_done for save in pending)
        # Not before the holder says so: else the job could be over while it still commits.
        return not pending

    async def match_own(self) -> None:
        """Let this rank's pins bear the names that the holder has just given."""
        if self._holding is not None:
            self._ships = self._holding.list.now()
        for ship in self._ships.ships:
            local = self._match(ship)
            if local is not None:
                await self._bear(local, ship.record)

    async def _bear(self, local: LocalSave, ship: ShipRecord) -> LocalSave:
        if local.record.name == ship.name:
            return local
        directory, rank = self._at.directory, self._at.site.config.rank
        local = await self._remember(
            local,
            name=ship.name,
            fence=ship.fence,
            n=ship.n,
            alone=directory.is_alone(local, ship, rank=rank),
        )
        self._looking.tell()
        return local

    async def give_up_leftovers(self) -> None:
        """At the go: finished saves of older attempts that never got a name stay without one.

        Nor is one waited for that a zombie has named in a shared directory after this attempt had
        listed the run: nobody will commit it.
        """
        at = self._at
        is_known = self._holding is not None and at.may_publish
        names = self._holding.list.known_names if self._holding is not None else set()
        for save in at.directory.saves:
            name = save.record.name
            if save.is_pending and (name is None or (is_known and name not in names)):
                log.info("left behind: %s", save.record.facts.root_key)
                await self._remember(save, over=f"left behind by attempt {at.attempt}")
        if self._holding is not None:
            self._holding.give_up_leftovers()
            self._holding.word.forget_ends()

    async def name_the_last(self, *, seconds: float) -> None:
        """The trainer ended: let its last save have a name before anybody chooses."""
        at = self._at
        deadline = time.monotonic() + seconds
        await self.tell()
        while self._holding is not None and at.may_publish and time.monotonic() < deadline:
            await self._holding.work()
            await self.match_own()
            if all(s.record.name for s in at.directory.saves if s.is_pending):
                return
            self._ships = self._holding.list.now()
            await self._learn_ends()
            await asyncio.sleep(0.02)

    # --- loops ---

    async def loop(self) -> None:
        """Tell, answer, name, commit, whenever something changed."""
        at = self._at
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(at.ship_now.wait(), self._patience())
            at.ship_now.clear()
            await self.round()

    def _patience(self) -> float:
        wake = self._holding.wake_at if self._holding is not None else None
        left = TELL_SECONDS if wake is None else max(0.05, wake - time.monotonic())
        return min(TELL_SECONDS, left)

    async def round(self, *, may_name: bool = True) -> None:
        await self.tell()
        if self._holding is not None:
            if self._at.may_publish:
                await self._holding.work(may_name=may_name)
            self._ships = self._holding.list.now()
        await self._learn_ends()
        await self._answer_all()
        if self._holding is not None and self._at.may_publish:
            await self._holding.work(may_name=may_name)
            self._ships = self._holding.list.now()
            await self._learn_ends()

    async def listen_loop(self) -> None:
        """Other ranks: hear of ships by long poll, from the store where the holder is silent."""
        at = self._at
        silent_since: float | None = None
        while True:
            url = at.holder_url
            if url is None:
                await asyncio.sleep(0.2)
                continue
            try:
                query = {"since": str(self._ships.version), "wait": str(POLL_SECONDS)}
                timeout = ClientTimeout(total=POLL_SECONDS + 10, connect=5)
                async with at.http.get(
                    url + contract.PATH_SHIPS, params=query, timeout=timeout
                ) as answer:
                    answer.raise_for_status()
                    self._ships = Ships.model_validate_json(await answer.read())
                silent_since = None
                at.ship_now.set()
            except (ClientError, TimeoutError, OSError, ValidationError):
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > FALLBACK_SECONDS:
                    await self._ask_store()
                    silent_since = time.monotonic()
                await asyncio.sleep(0.5)

    async def _ask_store(self) -> None:
        run, fence = self._at.run, self._ships.fence
        if run is None or fence is None:
            return
        with contextlib.suppress(StoreProblem):
            found = await asyncio.to_thread(run.read_ships, fence=fence, since=0)
            known = {ship.record.name for ship in self._ships.ships}
            new = [OpenShip(record=s) for s in found if s.name not in known | self._answered]
            if new:
                self._ships = self._ships.model_copy(update={"ships": [*self._ships.ships, *new]})
                self._at.ship_now.set()

    # --- telling ---

    def seen(self) -> Seen:
        at = self._at
        records = [save.record for save in at.directory.saves]
        unnamed = [s for s in at.directory.saves if s.is_pending and s.record.name is None]
        shared = at.site.config.shared_directory
        return Seen(
            job_uid=at.site.config.job_uid,
            rank=at.site.config.rank,
            attempt=at.attempt,
            saves=[
                SeenSave(
                    fingerprint=save.pin.fingerprint,
                    attempt=save.record.attempt,
                    ordinal=save.record.ordinal,
                    facts=save.record.facts,
                    paths=[file.path for file in save.pin.files],
                    bytes=save.bytes,
                    seen_at=save.record.seen_at,
                )
                for save in unnamed
            ],
            pinned=at.reporter.current.shares,
            parts=[r.name for r in records if r.part_done and r.name],
            final=at.settled,
            open_paths=sorted(at.supervisor.open_for_writing) if shared and at.supervisor else None,
        )

    async def tell(self) -> None:
        """Tell the holder when something changed, and now and then while something waits."""
        at, seen = self._at, self.seen()
        old = time.monotonic() - self._told_at
        if self._holding is not None:
            if seen != self._told or (seen.saves and old >= TELL_SECONDS):
                self._holding.hear(seen)
                self._told, self._told_at = seen, time.monotonic()
            return
        url = at.holder_url
        if url is None or (seen == self._told and (not seen.saves or old < TELL_SECONDS)):
            return
        try:
            async with at.http.post(
                url + contract.PATH_SEEN,
                data=seen.dump_json(),
                timeout=ClientTimeout(total=10, connect=3),
            ) as answer:
                answer.raise_for_status()
            self._told, self._told_at = seen, time.monotonic()
        except (ClientError, TimeoutError, OSError):
            self._told = None  # The holder may be starting: again with the next round.

    # --- what became of saves ---

    async def _learn_ends(self) -> None:
        at, ships = self._at, self._ships
        durable, dropped, skipped = set(ships.durable), set(ships.dropped), set(ships.skipped)
        ignored, changed = set(ships.ignored), False
        # First: as soon as no save is pending this pod is drained, and must say what is durable.
        newest = self.newest_durable
        if newest is not None and newest != at.journal.entry.last_durable_name:
            changed = True
            self._note_durable(newest)
        for save in at.directory.saves:
            record = save.record
            if record.name in durable and not record.durable:
                changed = True
                await self._remember(save, durable=True, over=None)
                await at.on_disk(at.directory.ledger.note_durable, save)
            elif record.name in dropped and not record.over and not record.durable:
                changed = True
                await self._remember(save, over="the holder dropped it")
            elif save.pin.fingerprint in ignored and not record.over:
                changed = True
                await at.on_disk(at.directory.ledger.disown, save)
                await self._remember(save, over="its trainer had not loaded what it was given")
            elif record.name is None and save.pin.fingerprint in skipped and not record.over:
                changed = True
                await self._remember(save, over="a newer save went first")
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
        """Drop pins that nobody needs: what is over, and durable ones beyond the newest two."""
        at = self._at
        if at.overtaken:
            return
        resume = at.journal.entry.resume
        in_use = {resume.name} if resume is not None else set()
        durable = [s for s in at.directory.saves if s.record.durable]
        kept = {s.record.name for s in durable[-DURABLE_PINS_KEPT:]}
        names = list(dict.fromkeys(s.record.name for s in durable))
        kept |= set(names[-DURABLE_PINS_KEPT:])
        for save in at.directory.saves:
            record = save.record
            spare = record.durable and record.name not in kept | in_use
            if spare or (record.over and record.name not in in_use):
                await at.on_disk(at.directory.drop, save)

    async def _remember(self, save: LocalSave, **changes: object) -> LocalSave:
        at = self._at
        try:
            known = await at.on_disk(at.directory.update, save, **changes)
        except DirectoryProblem as problem:
            at.reporter.degrade(DIRECTORY_KEY, problem.reason, problem.message)
            return save
        at.reporter.heal(DIRECTORY_KEY)
        return known

    # --- answering ---

    async def _answer_all(self) -> None:
        # Newest first: the newest save is what a fault would cost most.
        for ship in reversed(self._ships.ships):
            if time.monotonic() < self._not_before:
                return
            if ship.record.name not in self._answered:
                await self._answer(ship)

    async def _answer(self, ship: OpenShip) -> None:
        at, record = self._at, ship.record
        run = at.run
        if run is None:
            return
        local = self._match(ship)
        if local is None:
            if not self._may_say_none(record):
                return
            why = "this rank saw no files of it"
            await self._send(record, None, run.answer_none, record, why=why)
            return
        local = await self._bear(local, record)
        if not await at.on_disk(at.directory.is_intact, local):
            why = "its pinned files were overwritten in place"
            await self._send(record, local, run.answer_none, record, why=why)
            return
        aliases = set(local.record.facts.facts.get("aliases") or ())
        aliases |= set(local.record.facts.facts.get("companions") or ())
        sources = at.directory.sources(local)
        files = [
            LocalFile(
                path=file.path,
                source=sources[file.path],
                size=file.stamp.size,
                mode=file.source.mode,
                alias=file.path in aliases,
            )
            for file in local.pin.files
        ]
        await self._send(
            record,
            local,
            run.upload_part,
            record,
            files=files,
            save=local.record.facts,
            progress=lambda count: at.moved(uploaded=count),
            cancel=self.cancel,
        )

    async def _send(self, ship: ShipRecord, local: LocalSave | None, call, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        at = self._at
        try:
            part: PartRecord = await asyncio.to_thread(call, *args, **kwargs)
        except Cancelled:
            return
        except StoreProblem as problem:
            log.warning("upload of %s: %s", ship.name, problem.message)
            at.reporter.degrade(KEY, problem.reason, problem.message)
            self._not_before = time.monotonic() + self._back_off
            asyncio.get_running_loop().call_later(self._back_off + 0.01, at.ship_now.set)
            self._back_off = min(MAX_BACK_OFF, 2 * self._back_off)
            return
        except SourceChanged as changed:
            log.warning("upload of %s: %s", ship.name, changed)
            run = at.run
            if run is not None and call is not run.answer_none:
                await self._send(ship, local, run.answer_none, ship, why=str(changed))
            return
        self._back_off = MIN_BACK_OFF
        at.reporter.heal(KEY)
        self._answered.add(ship.name)
        self._heard_at.pop(ship.name, None)
        if local is not None:
            if part.files:
                await self._remember(local, part_done=True)
                await at.on_disk(self._learn_hashes, local, part)
            else:
                await self._remember(local, over=part.why_none or "answered with none")
        await self.tell()

    def _learn_hashes(self, local: LocalSave, part: PartRecord) -> None:
        directory = self._at.directory
        sources = directory.sources(local)
        for file in part.files:
            if file.path in sources:
                learn_hash(directory, sources[file.path], file.sha256)

    def _match(self, ship: OpenShip) -> LocalSave | None:
        """This rank's own save that the ship names."""
        at, record = self._at, ship.record
        own = [save for save in at.directory.saves if not save.record.mirror]
        for save in own:
            if save.record.name == record.name:
                return save
        fingerprint = ship.generations.get(at.site.config.rank)
        free = [s for s in own if s.record.name is None and not s.record.over]
        if fingerprint is not None:
            return next((s for s in free if s.pin.fingerprint == fingerprint), None)
        if at.site.config.rank not in record.expected and ship.generations:
            free = [s for s in free if s.record.attempt == at.attempt]
        for save in reversed(free):
            facts = save.record.facts
            if record.step is not None and facts.step is not None:
                same = facts.step == record.step and (
                    facts.root_key == record.root_key or facts.layout == record.layout
                )
            else:
                same = facts.root_key == record.root_key
            if same:
                return save
        return None

    def _may_say_none(self, ship: ShipRecord) -> bool:
        """After this rank has looked twice since it heard, and was not expected to have files."""
        at = self._at
        heard = self._heard_at.setdefault(ship.name, time.monotonic())
        waited = time.monotonic() - heard
        grace = 2 * max(1.0, at.site.config.poll_seconds)
        if at.settled or not at.site.touches_directory:
            return True
        expected = at.site.config.rank in ship.expected
        return waited >= (60.0 if expected else grace)


def _place(name: str) -> tuple[int, int]:
    save = parse_name(name)
    return (save.fence, save.n) if save is not None else (0, 0)
