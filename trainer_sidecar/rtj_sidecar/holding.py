"""The holder's part (rank 0): it names saves, waits for every rank's part, and commits.

Must never name a save before the fence of this attempt is held for certain, never name an older
save after a newer one, and never commit: `runs` does that, under its own guards.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rtj_api.reasons import Reason
from rtj_api.wire import Candidate, Directive, Phase

from rtj_sidecar.messages import OpenShip, Seen, Ships
from rtj_sidecar.naming import Group, Heard, groups, next_naming
from rtj_sidecar.runs.commit import Committed, Dropped, Waiting
from rtj_sidecar.runs.fence import FenceLost
from rtj_sidecar.runs.records import ManifestRecord, MarkKind, ShipRecord
from rtj_sidecar.runs.retain import Retained
from rtj_sidecar.runs.ships import Ignored, Named
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem

P = ParamSpec("P")
T = TypeVar("T")

NAME_GRACE_SECONDS, USUAL_GRACE_SECONDS = 2.0, 30.0
WAIT_SECONDS = 900.0
KEPT = 64
KEPT_IN_DIRECTORY = 5  # verified saves, where they lie on the volume that the trainer writes to
KEY = "store"


class Holding:
    """Only on rank 0. Everything here runs in the event loop's thread."""

    def __init__(self, station: Station) -> None:
        self._at = station
        self._heard: dict[tuple[int, str], Heard] = {}
        self._done: deque[tuple[int, str]] = deque(maxlen=4096)
        self._arrival = 0
        self._open: dict[str, OpenShip] = {}
        self._opened: dict[str, float] = {}
        self._durable: deque[str] = deque(maxlen=KEPT)
        self._left: frozenset[str] = frozenset()  # durable, on a line that was left
        self._dropped: deque[str] = deque(maxlen=KEPT)
        self._skipped: deque[str] = deque(maxlen=KEPT)
        self._refused: deque[str] = deque(maxlen=KEPT)
        self._usual: frozenset[int] = frozenset()
        self._version = int(time.time() * 1000)
        self._changed = asyncio.Event()
        self._ranks: dict[int, Seen] = {}
        self._wake_at: float | None = None
        self._busy = asyncio.Lock()

    # --- what others ask and say ---

    def hear(self, seen: Seen) -> None:
        """What a rank has. Raises ValueError for one of another gang."""
        at = self._at
        if seen.job_uid != at.site.config.job_uid:
            raise ValueError(f"job {seen.job_uid} is not {at.site.config.job_uid}")
        if seen.attempt < at.attempt:
            return  # A zombie, or a rank that has not heard of this attempt yet.
        self._ranks[seen.rank] = seen
        now = time.monotonic()
        missed: list[str] = []
        for save in seen.saves:
            key = (seen.rank, save.fingerprint)
            if key in self._done:
                if not self._is_open(seen.rank, save.fingerprint):
                    missed.append(save.fingerprint)
            elif key not in self._heard:
                self._arrival += 1
                self._heard[key] = Heard(seen.rank, save, self._arrival, now)
        self._tell_again(missed)
        at.ship_now.set()

    def _is_open(self, rank: int, fingerprint: str) -> bool:
        return any(ship.generations.get(rank) == fingerprint for ship in self._open.values())

    def _tell_again(self, fingerprints: list[str]) -> None:
        """A rank still waits for saves that are long decided: the list it is told is bounded, and
        after a long outage more were skipped at once than it holds."""
        new = [each for each in fingerprints if each not in self._skipped][: KEPT // 2]
        if new:
            self._skipped.extend(new)
            self._tell()

    def pinned_by_others(self) -> set[str]:
        """Names that some other rank of this attempt has pinned."""
        own = self._at.site.config.rank
        return {name for rank, seen in self._ranks.items() if rank != own for name in seen.pinned}

    async def ships(self, *, since: int | None, wait: float) -> Ships:
        deadline = time.monotonic() + wait
        while since == self._version and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return self.now()

    def now(self) -> Ships:
        return Ships(
            fence=self._at.fence,
            version=self._version,
            ships=list(self._open.values()),
            durable=list(self._durable),
            left=sorted(self._left),
            dropped=list(self._dropped),
            skipped=list(self._skipped),
            ignored=list(self._refused),
        )

    def _tell(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()
        self._at.ship_now.set()

    # --- what it knows ---

    def reopen(self, ships: list[ShipRecord]) -> None:
        """Go on with saves that were named before: after a restart, or by an older fence."""
        for record in ships:
            if record.name not in self._open:
                self._open[record.name] = OpenShip(record=record)
                self._opened[record.name] = time.monotonic()
        self._tell()

    def close_all_but(self, names: set[str]) -> None:
        """Forget open ships that can no longer be committed."""
        for name in [name for name in self._open if name not in names]:
            self._forget(name)
        self._tell()

    def knows_as_durable(self, names: list[str]) -> None:
        self._left -= set(names)
        for name in names:
            if name not in self._durable:
                self._durable.append(name)
        self._tell()

    def begin_line(self, durable: list[str]) -> None:
        """Only these saves (oldest first) are before what comes; none: a start from nothing."""
        before = [name for name in self._durable if name not in durable] if durable else []
        self._durable = deque([*before, *durable], maxlen=KEPT)
        self._left = frozenset(before)
        self._tell()

    def _forget(self, name: str) -> None:
        self._open.pop(name, None)
        self._opened.pop(name, None)

    @property
    def open_names(self) -> list[str]:
        return list(self._open)

    @property
    def known_names(self) -> set[str]:
        """Saves of this run that are on their way, durable, or dropped by name."""
        return {*self._open, *self._durable, *self._dropped}

    @property
    def wake_at(self) -> float | None:
        return self._wake_at

    def is_idle(self) -> bool:
        """Whether nothing that was heard of waits to become durable."""
        return not self._open and not self._heard

    def forget_ends(self) -> None:
        """At the go: no rank's last word on the attempt before is its last on this one."""
        for rank, seen in self._ranks.items():
            self._ranks[rank] = seen.model_copy(update={"final": False})

    def expect_as_usual(self, ranks: list[int]) -> None:
        """Who wrote the newest durable save, as far as this holder has seen none commit."""
        self._usual = self._usual or frozenset(ranks)

    def give_up_leftovers(self) -> None:
        """What an older attempt left without a name is never named by this one.

        Its number would stand after, and so be preferred to, saves that come later in training.
        """
        for key in [k for k, h in self._heard.items() if h.save.attempt < self._at.attempt]:
            del self._heard[key]
            self._done.append(key)

    @property
    def has_unnamed(self) -> bool:
        """Whether some rank told of a save that has no name yet."""
        return bool(self._heard)

    def all_final(self) -> bool:
        """Whether every rank has looked at its directory since its trainer of before ended."""
        directive = self._at.directive
        size = directive.world_size if directive is not None else 1
        new = set(directive.replaced) if directive is not None else set()
        return all(
            rank in new  # an empty pod has nothing to tell
            or (
                rank in self._ranks
                and self._ranks[rank].final
                and self._ranks[rank].attempt == self._at.attempt
            )
            for rank in range(size)
        )

    # --- what the trainers of the other pods do to a directory that all share ---

    def others_open(self) -> frozenset[str] | None:
        """What they have open for writing, by their supervisors' word; None where one is silent."""
        told = self._others()
        if told is None or any(seen.open_paths is None for seen in told):
            return None
        return frozenset(path for seen in told for path in seen.open_paths or ())

    def others_have_ended(self) -> bool:
        """Whether no other pod's trainer of this attempt runs; a replaced one's may."""
        directive = self._at.directive
        told = self._others()
        if told is None or directive is None or directive.replaced:
            return False
        return all(seen.final for seen in told)

    def _others(self) -> list[Seen] | None:
        at = self._at
        size = at.directive.world_size if at.directive is not None else 1
        ranks = [rank for rank in range(size) if rank != at.site.config.rank]
        told = [self._ranks[rank] for rank in ranks if rank in self._ranks]
        has_all = len(told) == len(ranks) and all(seen.attempt == at.attempt for seen in told)
        return told if has_all else None

    # --- naming and committing ---

    async def work(
        self, *, final: bool = False, may_name: bool = True, may_commit: bool = True
    ) -> None:
        """One round: name what is ready, try to commit what is open."""
        async with self._busy:
            self._wake_at = None
            while may_name and await self._name_next(final=final or self.all_final()):
                pass
            for name in list(self._open) if may_commit else ():
                if name in self._open:
                    await self._commit(self._open[name].record)

    async def _name_next(self, *, final: bool) -> bool:
        """Whether something was named or skipped, so that another look is worth it."""
        at = self._at
        run, fence, directive = at.run, at.fence, at.directive
        if run is None or fence is None or directive is None:
            return False
        if directive.phase is Phase.GO or at.link.told_to_go() >= at.attempt:
            self.give_up_leftovers()
        found = next_naming(
            heard=list(self._heard.values()),
            open_ships=len(self._open),
            usual=self._usual,
            world_size=directive.world_size,
            now=time.monotonic(),
            # Who wrote the last save writes this one: named without it, each share of the save
            # would pass for a save of its own.
            grace=USUAL_GRACE_SECONDS if self._usual else NAME_GRACE_SECONDS,
            final=final,
        )
        self._wake_at = found.wake_at
        if found.name is None:
            return False
        lead = found.name.lead
        entry = at.journal.entry
        answer = await self._in_store(
            run.name_ship,
            fence=fence,
            n=entry.next_n,
            save=lead.facts,
            seen={rank: heard.save.paths for rank, heard in found.name.by_rank.items()},
            world_size=directive.world_size,
            parent=entry.parent,
        )
        if isinstance(answer, Named):
            self._named(answer.ship, found.name, skipped=found.skipped)
            return True
        if isinstance(answer, Ignored):
            # Whatever else that trainer saved is as little worth.
            refused = tuple(groups(list(self._heard.values())))
            self._refused.extend(mark for g in refused for mark in g.generations.values())
            self._skip(refused)
            # A leftover of an older attempt says nothing of the trainer that runs now.
            if lead.attempt == at.attempt:
                self._ignored(answer.message)
        return False

    def _named(self, ship: ShipRecord, group: Group, *, skipped: tuple[Group, ...]) -> None:
        at = self._at
        at.journal.note(next_n=ship.n + 1)
        self._skip(skipped)
        self._finish(group)
        self._open[ship.name] = OpenShip(
            record=ship, generations=group.generations, made_in=group.lead.attempt
        )
        self._opened[ship.name] = time.monotonic()
        log.info("named %s, expected from ranks %s", ship.name, ship.expected)
        facts = group.lead.facts
        at.candidates = [
            Candidate(
                name=ship.name,
                step=ship.step,
                epoch=ship.epoch,
                loss=facts.loss,
                bytes=sum(heard.save.bytes for heard in group.by_rank.values()),
                durable=False,
                full_state=facts.full_state,
                needs=ship.expected,
                written_at=ship.named_at,
            ),
            *(c for c in at.candidates if c.name != ship.name),
        ]
        at.tell_candidates()
        self._tell()

    def _skip(self, groups: tuple[Group, ...]) -> None:
        for group in groups:
            log.info("skipped %s: a newer save goes first", group.lead.facts.root_key)
            self._skipped.extend(group.generations.values())
            self._finish(group)
        if groups:
            self._tell()

    def _finish(self, group: Group) -> None:
        for rank, heard in group.by_rank.items():
            key = (rank, heard.save.fingerprint)
            self._heard.pop(key, None)
            self._done.append(key)

    async def _commit(self, ship: ShipRecord) -> None:
        at = self._at
        run, fence = at.run, at.fence
        if run is None or fence is None:
            return
        made_in = self._open[ship.name].made_in
        answer = await self._in_store(run.try_commit, ship, fence=fence, gone=self._gone(ship))
        if isinstance(answer, Committed):
            self._committed(answer.manifest)
            await self._retain()
        elif isinstance(answer, Dropped):
            self._drop(ship, answer.message)
        elif isinstance(answer, Ignored):
            self._drop(ship, answer.message)
            # A leftover of an older attempt may have got its name before this one's choice, which
            # may lie above it where another job had gone on with the run meanwhile.
            if made_in == at.attempt:
                self._ignored(answer.message)
        elif isinstance(answer, FenceLost):
            self.lost(answer.by)
        elif isinstance(answer, Waiting):
            waited = time.monotonic() - self._opened.get(ship.name, 0)
            # A stop ends when nothing is open any more: it cannot wait for a rank for ever.
            if waited > WAIT_SECONDS and (self._heard or _is_stop(at.directive)):
                if not await self._in_store(run.held, fence):
                    return  # another holds the run by now, and may still get that part
                why = f"ranks {answer.ranks} did not send their part within {WAIT_SECONDS:.0f} s"
                await self._in_store(
                    run.mark,
                    ship.name,
                    kind=MarkKind.DROPPED,
                    reason=Reason.UPLOAD_LAGGING,
                    message=why,
                    evidence={"ranks": list(answer.ranks)},
                )
                self._drop(ship, why)

    def _gone(self, ship: ShipRecord) -> list[int]:
        """Ranks whose files of a save are lost: a new pod that has no pin of a save of an older
        attempt, and at a stop a rank that has no pod."""
        directive = self._at.directive
        if directive is not None and _is_stop(directive):
            absent = set(directive.replaced) - set(self._ranks)
            if absent & set(ship.expected):
                return sorted(absent)
        if ship.fence == self._at.fence:
            return []

        def has_lost(seen: Seen) -> bool:
            holds = ship.name in seen.pinned or ship.name in seen.parts
            waits = any(save.facts.root_key == ship.root_key for save in seen.saves)
            return seen.attempt == self._at.attempt and not holds and not waits

        return [r for r in ship.expected if r in self._ranks and has_lost(self._ranks[r])]

    async def _retain(self) -> None:
        """Beyond `keep_last`, durable saves are marked, and deleted an hour later."""
        at = self._at
        keep, run, fence = at.site.config.keep_last, at.run, at.fence
        if keep is None and at.site.config.keeps_in_directory:
            keep = KEPT_IN_DIRECTORY  # the trainer's own rotation frees nothing that is linked
        if keep is None or run is None or fence is None:
            return
        resume = at.journal.entry.resume
        in_use = [resume.name] if resume is not None and resume.name else []
        done = await self._in_store(run.retain, fence=fence, keep_last=keep, in_use=in_use)
        gone = set(done.marked) if isinstance(done, Retained) else set()
        if gone:
            at.candidates = [c for c in at.candidates if c.name not in gone]
            at.tell_candidates()

    def _committed(self, manifest: ManifestRecord) -> None:
        at = self._at
        log.info("durable %s", manifest.name)
        self._forget(manifest.name)
        self._usual = frozenset(manifest.ranks)
        self._durable.append(manifest.name)
        at.candidates = [
            c.model_copy(
                update={
                    "durable": True,
                    "needs": manifest.ranks,
                    "bytes": manifest.bytes,
                    "full_state": manifest.full_state,
                    "loss": manifest.loss,
                }
            )
            if c.name == manifest.name
            else c
            for c in at.candidates
        ]
        at.tell_candidates()
        self._tell()

    def _drop(self, ship: ShipRecord, why: str) -> None:
        at = self._at
        log.warning("dropped %s: %s", ship.name, why)
        self._forget(ship.name)
        self._dropped.append(ship.name)
        at.candidates = [c for c in at.candidates if c.name != ship.name]
        at.tell_candidates()
        self._tell()

    async def _in_store(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The call's answer; None when the store has a problem, which is then told."""
        at = self._at
        try:
            answer = await asyncio.to_thread(call, *args, **kwargs)
        except StoreProblem as problem:
            at.reporter.degrade(KEY, problem.reason, problem.message)
            self._wake_at = time.monotonic() + 5
            return None
        at.reporter.heal(KEY)
        return answer

    def _ignored(self, message: str) -> None:
        at = self._at
        at.link.kill(up_to=at.attempt)
        at.fail(Reason.CHECKPOINT_IGNORED, message)

    def lost(self, by: int) -> None:
        """A higher fence exists: whoever holds it publishes, and this attempt stops."""
        at = self._at
        at.may_publish = False
        at.link.kill(up_to=at.attempt)
        at.fail(
            Reason.FENCE_TAKEN,
            f"fence {by} of run {at.site.config.run_id} follows ours ({at.fence}): a newer "
            "attempt, or a job that took the run over, publishes now, so this one stops",
        )


def _is_stop(directive: Directive | None) -> bool:
    return directive is not None and directive.phase is Phase.STOP
