"""This rank's part of each save that the holder has named: its files, or the word that it has none.

Uploads come from pins only. Must never answer "none" while its own files of that save may still be
on their way, and never send a file that is not the one that was judged.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field

from rtj_api.reasons import Reason
from rtj_api.wire import TransferKind

from rtj_sidecar.arrivals import learn_hash
from rtj_sidecar.fates import Fates, newest_durable
from rtj_sidecar.localsave import LocalSave
from rtj_sidecar.messages import OpenShip, Ships
from rtj_sidecar.runs.records import SAW_NO_FILES, PartRecord, SaveFacts, ShipRecord
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import Cancelled, SourceChanged, StoreProblem
from rtj_sidecar.traffic import Sent
from rtj_sidecar.unfinished import is_named_share, is_one_save
from rtj_sidecar.waits import happens

LOOK_SECONDS = 1.0
# The first of them may have begun before this rank heard of the save, and the second may find it
# still changing.
LOOKS = 3
EXPECTED_SECONDS = 60.0
# What is left of an upload that a newer save does not put aside: a tenth of the newer one.
NEARLY_DONE = 0.1
MIN_BACK_OFF, MAX_BACK_OFF = 1.0, 30.0
KEY = "upload"
OF_ONE_SAVE = frozenset({Reason.PATH_NOT_WRITABLE, Reason.STORE_UNSUPPORTED, Reason.INTERNAL_ERROR})
"""What ended an upload and says nothing of another save's: its files, or what it is."""


@dataclass(frozen=True, slots=True)
class Hearing:
    """When this rank heard of a ship (monotonic), and how many looks it had completed then."""

    at: float
    looks: int


@dataclass(slots=True)
class Current:
    """The upload under way. `left`: bytes; any thread counts them down."""

    name: str
    cancel: threading.Event
    left: int
    is_whole: bool
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, sent: int) -> None:
        with self._lock:
            self.left -= sent


def is_put_aside(current: Current, *, newer_bytes: int, newer_is_whole: bool) -> bool:
    """Whether an upload under way waits until a newer save that has its name was sent.

    Not where it is nearly done, nor for weights alone, which do not count for a newest save. It
    goes on afterwards, and no third save gets a name meanwhile (`naming`), so that each upload is
    put aside at most once and one of any two is durable after two upload times. Nor for one whose
    own upload has failed: that would never end.
    """
    is_better = newer_is_whole or not current.is_whole
    return is_better and current.left > NEARLY_DONE * newer_bytes


class Uploading:
    """One upload at a time. Belongs to the event loop's thread."""

    def __init__(self, station: Station, fates: Fates) -> None:
        self._at = station
        self._fates = fates
        self._heard: dict[str, Hearing] = {}  # of ships that it has no files of
        self.answered: set[str] = set()
        self._back_off = MIN_BACK_OFF
        self._not_before = 0.0  # monotonic: the store has a moment's rest
        self._failed_at: dict[str, float] = {}  # monotonic, by save: see OF_ONE_SAVE
        self._ships = Ships(version=0)
        self._news = asyncio.Event()
        self._current: Current | None = None
        self._is_closing = False

    def hear(self, ships: Ships) -> None:
        """The holder's list as it is now; what it has decided is not sent any further."""
        self._ships = ships
        self._news.set()
        current = self._current
        if current is None or current.cancel.is_set():
            return
        if current.name in ships.dropped or current.name in ships.durable:
            current.cancel.set()
        elif (newer := self._waits_behind(current)) is not None:
            log.info("upload of %s: put aside, %s goes first", current.name, newer)
            current.cancel.set()

    def _waits_behind(self, current: Current) -> str | None:
        """The newer save for which that upload is put aside."""
        for ship in reversed(self._ships.ships):
            name = ship.record.name
            if name == current.name:
                return None
            local = self.match(ship)
            if local is None or name in self.answered or self._is_decided(name):
                continue
            if name in self._failed_at:
                continue
            is_whole = local.record.facts.full_state is not False
            if is_put_aside(current, newer_bytes=local.bytes, newer_is_whole=is_whole):
                return name
        return None

    def _is_decided(self, name: str) -> bool:
        return name in self._ships.dropped or name in self._ships.durable

    @property
    def is_busy(self) -> bool:
        """Whether files are on their way to the store."""
        return self._current is not None

    def stop(self) -> None:
        """Nothing more is sent: the agent ends."""
        self._is_closing = True
        if self._current is not None:
            self._current.cancel.set()

    async def loop(self) -> None:
        """Beside the round: an upload may take minutes, in which this rank tells and hears on."""
        while True:
            await happens(self._news, seconds=LOOK_SECONDS)
            self._news.clear()
            while (ship := self._next()) is not None:
                await self._answer(ship)
                self._at.ship_now.set()

    def _next(self) -> OpenShip | None:
        """What this rank has not answered yet, newest first: a fault would cost most of it. One
        that failed by itself comes after the others, and before those that failed since."""
        if time.monotonic() < self._not_before or self._is_closing or self._at.run is None:
            return None
        waiting = [
            ship
            for ship in reversed(self._ships.ships)
            if ship.record.name not in self.answered
            and not self._is_decided(ship.record.name)
            and (self.match(ship) is not None or self._may_say_none(ship.record))
        ]
        return min(waiting, key=lambda s: self._failed_at.get(s.record.name, 0.0), default=None)

    async def _answer(self, ship: OpenShip) -> None:
        at, record = self._at, ship.record
        run = at.run
        if run is None:
            return
        local = self.match(ship)
        if local is None:
            made_in = at.site.config.made_in
            await self._send(
                record, None, run.publishing.answer_none, record, why=SAW_NO_FILES, made_in=made_in
            )
            return
        local = await self._fates.bear(local, record)
        if not await at.on_disk(at.directory.is_intact, local):
            why = "its pinned files were overwritten in place"
            await self._send(record, local, run.publishing.answer_none, record, why=why)
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
        cancel, size = threading.Event(), sum(file.size for file in files)
        is_whole = local.record.facts.full_state is not False
        current = self._current = Current(record.name, cancel, size, is_whole)
        began, before = time.monotonic(), at.traffic.uploaded
        try:
            with at.transfers.under_way(TransferKind.UPLOAD, record.name, size) as count:

                def kept(more: int) -> None:
                    current.count(more)
                    count(more)

                def sent(more: int) -> None:
                    kept(more)
                    at.moved(uploaded=more)

                await self._send(
                    record,
                    local,
                    run.moving.upload_part,
                    record,
                    files=files,
                    save=local.record.facts,
                    after=newest_durable(self._ships),
                    progress=sent,
                    kept=kept,
                    cancel=cancel,
                )
        finally:
            self._current = None
            cancel.set()  # also where this task was cancelled: the thread goes on by itself
        moved = at.traffic.uploaded - before
        if record.name in self.answered and moved > 0:
            at.sent = Sent(moved, time.monotonic() - began)

    async def _send(self, ship: ShipRecord, local: LocalSave | None, call, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        at = self._at
        try:
            part: PartRecord = await asyncio.to_thread(call, *args, **kwargs)
        except Cancelled:
            return
        except StoreProblem as problem:
            log.warning("upload of %s: %s", ship.name, problem.message)
            at.reporter.degrade(KEY, problem.reason, problem.message)
            if problem.reason in OF_ONE_SAVE:
                self._failed_at[ship.name] = time.monotonic()
            self._not_before = time.monotonic() + self._back_off
            asyncio.get_running_loop().call_later(self._back_off + 0.01, self._news.set)
            self._back_off = min(MAX_BACK_OFF, 2 * self._back_off)
            return
        except SourceChanged as changed:
            log.warning("upload of %s: %s", ship.name, changed)
            run = at.run
            if run is not None and call is not run.publishing.answer_none:
                await self._send(ship, local, run.publishing.answer_none, ship, why=str(changed))
            return
        self._back_off = MIN_BACK_OFF
        at.reporter.heal(KEY)
        self.answered.add(ship.name)
        self._heard.pop(ship.name, None)
        self._failed_at.pop(ship.name, None)
        if local is not None:
            if part.files:
                await self._fates.remember(local, part_done=True)
                await at.on_disk(self._learn_hashes, local, part)
            else:
                await self._fates.remember(local, over=part.why_none or "answered with none")

    def _learn_hashes(self, local: LocalSave, part: PartRecord) -> None:
        directory = self._at.directory
        sources = directory.sources(local)
        for file in part.files:
            if file.path in sources:
                learn_hash(directory, sources[file.path], file.sha256)

    def match(self, ship: OpenShip) -> LocalSave | None:
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
        named = SaveFacts(root_key=record.root_key, layout=record.layout, step=record.step)
        alike = [save for save in free if is_one_save(named, save.record.facts)]
        if record.step is None and at.site.config.rank in record.expected:
            # It had told of its share by then: what was finished after that is of a later save.
            alike = [s for s in alike if s.record.seen_at <= record.named_at] or alike
        return alike[-1] if alike else None

    def _may_say_none(self, ship: ShipRecord) -> bool:
        """After this rank has looked since it heard, however long that takes where it is slow or
        was paused; later where it was expected to have files."""
        at = self._at
        heard = self._heard.setdefault(ship.name, Hearing(time.monotonic(), at.looks))
        if at.settled or not at.site.touches_directory:
            return True
        # No looks are made before a trainer runs: what lies there was looked at in prepare.
        is_known = at.looks - heard.looks >= LOOKS if at.is_training else at.looks > 0
        if not is_known or (at.site.config.rank in ship.asked and self._may_be_writing(ship)):
            return False
        expected = at.site.config.rank in ship.expected
        grace = EXPECTED_SECONDS if expected else 2 * max(1.0, at.site.config.poll_seconds)
        return time.monotonic() - heard.at >= grace

    def _may_be_writing(self, ship: ShipRecord) -> bool:
        """Whether something unfinished here may become a share of it."""
        facts = SaveFacts(root_key=ship.root_key, layout=ship.layout, step=ship.step)
        return any(is_named_share(what, facts) is not False for what in self._at.unfinished)
