"""The holder's part (rank 0): it names the saves that the ranks tell of, and has them committed.

Must never name a save before the fence of this attempt is held for certain, and never name an older
save after a newer one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from rtj_api.reasons import Reason
from rtj_api.wire import Phase, Verdict

from rtj_sidecar.committing import Committing
from rtj_sidecar.gangword import GangWord
from rtj_sidecar.latecomers import Late, Latecomers, known_of
from rtj_sidecar.messages import OpenShip, Seen, SeenSave
from rtj_sidecar.naming import Group, Heard, Naming, as_candidate, groups, next_naming
from rtj_sidecar.opening import procs_of, world_of_new
from rtj_sidecar.remembered import recorded_names, recorded_shape, said_as_torn
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.records import ShipRecord
from rtj_sidecar.runs.ships import Ignored, Named
from rtj_sidecar.shiplist import ShipList
from rtj_sidecar.station import Station, log
from rtj_sidecar.unions import Shape, next_shape, next_whole, shape_of

NAME_GRACE_SECONDS, USUAL_GRACE_SECONDS = 2.0, 30.0
MAX_GRACE_SECONDS = 900.0
ENDING_GRACE_SECONDS = 5.0  # in a pod that is ended: whom it asks may have gone on without it


class Holding:
    """Only on rank 0. Everything here runs in the event loop's thread."""

    def __init__(self, station: Station) -> None:
        self._at = station
        self._heard: dict[tuple[int, str], Heard] = {}
        self._done: deque[tuple[int, str]] = deque(maxlen=4096)
        self._arrival = 0
        self.word = GangWord(station)
        self._late = Latecomers()
        self._refusing: dict[tuple[int, str | None], Late] = {}  # that the store does not know yet
        self.list = ShipList(
            fence=lambda: station.fence, wake=station.ship_now.set, holders=self.word.holders
        )
        self.committing = Committing(station, self.list, self.word)
        self._shape: Shape | None = None  # of the last save that several ranks wrote
        self._wake_at: float | None = None
        self._busy = asyncio.Lock()

    # --- what others ask and say ---

    def hear(self, seen: Seen) -> None:
        """What a rank has. Raises ValueError for one of another gang."""
        at = self._at
        if not self.word.hear(seen):
            return
        now = time.monotonic()
        missed: list[str] = []
        for told in seen.saves:
            save = self.word.by_own_clock(seen.rank, told)
            key = (seen.rank, save.fingerprint)
            if key in self._refusing:
                continue  # what it lacks is told to nobody before the store knows it
            if key in self._done:
                if not self.list.names_generation(seen.rank, save.fingerprint):
                    missed.append(save.fingerprint)
            elif key not in self._heard:
                if self._has_name(seen.rank, save) or self._is_late(seen.rank, save):
                    continue
                self._arrival += 1
                question = 0 if self.word.waited_for else self._ask()
                self._heard[key] = Heard(seen.rank, save, self._arrival, now, question)
        self.list.skipped_again(missed)
        at.ship_now.set()

    def _has_name(self, rank: int, save: SeenSave) -> bool:
        """A share of what a holder before this one has named, told again by a rank that has not
        heard the name: the store knows its ranks, but not which generation each of them has."""
        said = self.word.said[rank]
        if any(one.fingerprint == save.fingerprint for one in said.saves):
            # What bears the name there already is another generation.
            named = self.list.awaiting(rank, save, but={*said.pinned, *said.parts})
        else:
            named = self.list.awaiting(rank, save, but=())
        if named is None:
            return False
        self._done.append((rank, save.fingerprint))
        self.list.knows_generation(named, rank, save.fingerprint)
        return True

    def _is_late(self, rank: int, save: SeenSave) -> bool:
        """A share of what was named without it: from here on nobody may begin from that."""
        late = self._late.hear(rank, save, attempt=self._at.attempt)
        if late is None:
            return False
        self.word.has_latecomers = True
        named = self.list.open.get(late.name or "")
        if named is not None and rank in named.record.asked:
            # It was silent, and is waited for: its share belongs to it.
            self._done.append((rank, save.fingerprint))
            self.list.knows_generation(named, rank, save.fingerprint)
            return True
        self._refuse(late)
        return True

    def _refuse(self, late: Late) -> None:
        self._refusing[late.rank, late.fingerprint or late.name] = late
        if late.name is not None:
            self._at.halves[late.name] = late.why
            self._at.tell_candidates()

    def learn(self, history: History) -> None:
        """What a holder before this one knew, by the records; what was heard so far is judged by
        it, too."""
        self._shape = recorded_shape(history) or self._shape
        for name in said_as_torn(history, self._at.halves):
            del self._at.halves[name]  # from here on the marks say it, and may take it back
        self._late.learn(recorded_names(history, job_uid=self._at.site.config.job_uid))
        for key, heard in list(self._heard.items()):
            if self._has_name(heard.rank, heard.save) or self._is_late(heard.rank, heard.save):
                del self._heard[key]

    # --- what it knows ---

    def told(self) -> dict[str, list[int]]:
        """By the name of each open save: the ranks that told of a share of it, in time or late."""
        late = [(one.name, one.rank) for one in self._refusing.values()]
        return {
            name: sorted({*ship.generations, *(rank for of, rank in late if of == name)})
            for name, ship in self.list.open.items()
        }

    @property
    def wake_at(self) -> float | None:
        return self.committing.retry_at or self._wake_at

    def is_idle(self) -> bool:
        """Whether nothing that was heard of waits to become durable."""
        return not (self.list.open or self._heard or self._refusing)

    def is_left_to_others(self) -> bool:
        """All that is open waits for nothing but the word of ranks that have told of no share, and
        had the time to: the next holder asks them. A rank that is still sending its share is waited
        for until the drain is over, for the next holder might choose before it is there."""
        ships = [ship.record for ship in self.list.open.values()]
        return not (self._heard or self._refusing) and all(
            time.time() - ship.named_at > ENDING_GRACE_SECONDS
            and self.committing.waits_for_silent_only(ship)
            for ship in ships
        )

    def give_up_leftovers(self) -> None:
        """What an older attempt left without a name is never named by this one.

        Its number would stand after, and so be preferred to, saves that come later in training.
        """
        self._give_up(lambda attempt: attempt < self._at.attempt)

    def _give_up(self, is_over: Callable[[int], bool]) -> None:
        for key in [k for k, h in self._heard.items() if is_over(h.save.attempt)]:
            del self._heard[key]
            self._done.append(key)

    @property
    def has_unnamed(self) -> bool:
        """Whether some rank told of a save that has no name yet."""
        return bool(self._heard)

    # --- naming ---

    def _ask(self) -> int:
        at = self._at
        at.question = self.list.ask()
        at.look_now.set()
        return at.question

    def _ask_for(self, waits: Sequence[Group]) -> None:
        """What the others have of each, once; of many only the newest two can still be of use."""
        new = [h for group in waits for h in group.by_rank.values() if not h.question]
        question = self._ask() if new else 0
        for one in new:
            self._heard[one.rank, one.save.fingerprint] = replace(one, question=question)
        self._skip(tuple(waits[:-2]))

    async def _refuse_halves(self) -> None:
        """Nobody may begin from a save that was named without the share of a rank that wrote."""
        for key, late in list(self._refusing.items()):
            if await self.committing.refuse_half(late):
                self._refusing.pop(key, None)
                if late.fingerprint is not None:
                    self._done.append((late.rank, late.fingerprint))
                    self.list.skipped_again([late.fingerprint])

    async def work(
        self, *, final: bool = False, may_name: bool = True, may_commit: bool = True
    ) -> None:
        """One round: name what is ready, try to commit what is open."""
        async with self._busy:
            self._wake_at = self.committing.retry_at = None
            await self._refuse_halves()
            while may_name and await self._name_next(final=final or self.word.all_final()):
                pass
            for name in list(self.list.open) if may_commit else ():
                if name in self.list.open:
                    ship = self.list.open[name].record
                    await self.committing.commit(ship, is_awaited=bool(self._heard))

    async def _name_next(self, *, final: bool) -> bool:
        """Whether something was named or skipped, so that another look is worth it."""
        at = self._at
        run, fence, directive = at.run, at.fence, at.directive
        if run is None or fence is None or directive is None:
            return False
        if directive.phase is Phase.GO or at.link.told_to_go() >= at.attempt:
            self.give_up_leftovers()
        self._give_up(lambda attempt: 0 < attempt == at.journal.entry.refused_attempt)
        late = min(MAX_GRACE_SECONDS, 2 * self._late.longest)
        longest = max(USUAL_GRACE_SECONDS, late)
        if at.reporter.current.terminating and not self.word.has_any_unfinished():
            longest = min(longest, ENDING_GRACE_SECONDS)
        world = world_of_new(at, directive) or directive.world_size

        def next_of(heard: Sequence[Heard]) -> Naming:
            return next_naming(
                heard=heard,
                open_ships=len(self.list.open),
                lagging_since=self.list.lagging_since(self.word.sent),
                usual=self.word.waited_for,
                world_size=directive.world_size,
                now=time.monotonic(),
                # Who wrote the last save writes this one: named without it, each share of the save
                # would pass for a save of its own.
                grace=longest if self.word.waited_for else NAME_GRACE_SECONDS,
                longest=longest,
                told=self.word.told(),
                final=final,
            )

        config = at.site.config
        whole = next_whole(
            next_of,
            list(self._heard.values()),
            world=world,
            procs=procs_of(config),
            is_counted=config.procs_stated,
            has_ended=final,
            last=self._shape,
            told=self.word.told(),
        )
        found = whole.naming
        self._ask_for(whole.waits)
        if not final or self.word.all_final():
            # Nobody tells of what is missing any more, or in time. Who does all the same is known
            # for a latecomer.
            self._tell_torn(whole.torn)
            for group, _ in whole.torn:
                guess = not self.word.waited_for
                self._late.named(known_of(group, name=None, was_guess=guess))
            self._skip(tuple(group for group, _ in whole.torn))
        self._wake_at = found.wake_at
        if found.name is None:
            return False
        lead, shape = found.name.lead, shape_of(found.name, world=world)
        entry = at.journal.entry
        answer = await self.committing.in_store(
            run.publishing.name_ship,
            fence=fence,
            n=entry.next_n,
            save=found.name.facts,
            seen={rank: heard.save.paths for rank, heard in found.name.by_rank.items()},
            world_size=world,
            made_in=lead.attempt,
            asked=found.silent,
            shape=shape.kinds,
            parent=entry.parent,
        )
        if isinstance(answer, Named):
            self._named(answer.ship, found.name, skipped=(*found.skipped, *whole.older))
            self._shape = next_shape(self._shape, shape)
            return True
        if isinstance(answer, Ignored):
            # Whatever else that trainer saved is as little worth.
            refused = tuple(groups(list(self._heard.values())))
            self.list.refused([mark for g in refused for mark in g.generations.values()])
            self._skip(refused)
            # A leftover of an older attempt says nothing of the trainer that runs now.
            if lead.attempt == at.attempt:
                self.committing.ignored(answer.message)
        return False

    def _named(self, ship: ShipRecord, group: Group, *, skipped: tuple[Group, ...]) -> None:
        at = self._at
        at.journal.note(next_n=ship.n + 1)
        self._skip(skipped)
        self._finish(group)
        known = known_of(group, name=ship.name, was_guess=not self.word.waited_for)
        # The record may be of a try whose answer was lost, before another rank told.
        self._late.named(replace(known, ranks=frozenset(ship.expected)))
        for rank in known.ranks - set(ship.expected):
            self._refuse(Late(ship.name, rank, None, None))
        self.list.add(
            OpenShip(record=ship, generations=group.generations, made_in=group.lead.attempt)
        )
        log.info("named %s, expected from ranks %s", ship.name, ship.expected)
        facts = group.facts.facts
        named = as_candidate(ship, group, required=at.site.config.required_keys)
        if at.run is not None:
            # It may lie there from another number of processes, and be chosen before it is durable.
            named = at.run.suiting.fitting(named, facts=facts)
        at.candidates = [named, *(c for c in at.candidates if c.name != ship.name)]
        at.tell_candidates()
        self.list.tell()

    def _tell_torn(self, torn: Sequence[tuple[Group, str]]) -> None:
        for group, why in torn:
            save = group.lead
            log.warning("%s gets no name: %s", save.facts.root_key, why)
            verdict = Verdict(
                name=f"{save.facts.root_key}@{save.fingerprint[:8]}",
                step=group.facts.step,
                reason=Reason.CHECKPOINT_TORN,
                message=f"{save.facts.root_key}, of ranks {sorted(group.by_rank)}: {why}",
                at=time.time(),
            )
            self._at.reporter.add_verdict(verdict)

    def _skip(self, groups: tuple[Group, ...]) -> None:
        for group in groups:
            log.info("skipped %s: a newer save goes first", group.lead.facts.root_key)
            self.list.skipped(group.generations.values())
            self._finish(group)
        if groups:
            self.list.tell()

    def _finish(self, group: Group) -> None:
        for rank, heard in group.by_rank.items():
            key = (rank, heard.save.fingerprint)
            self._heard.pop(key, None)
            self._done.append(key)
