"""Looks at the checkpoint directory again and again: finished saves are pinned, bad ones told.

Must never pin a save that its writer may still change, nor count a save that no trainer of this
job made while its sidecar looked after it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace

from rtj_api.reasons import Reason
from rtj_api.wire import CheckpointView, Phase, Verdict

from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.types import FoundSave, Status
from rtj_sidecar.checkpoints.types import Verdict as Judgement
from rtj_sidecar.costs import costs_of, note_save
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.holding import Holding
from rtj_sidecar.localsave import LocalSave
from rtj_sidecar.messages import Unfinished
from rtj_sidecar.pinning import pin_found
from rtj_sidecar.room import PodVolume, ease
from rtj_sidecar.sight import HURRY_SECONDS, Look
from rtj_sidecar.station import Station, log
from rtj_sidecar.unfinished import unfinished_of
from rtj_sidecar.unfit_told import tell_unfit
from rtj_sidecar.verifying import told_with
from rtj_sidecar.versions_told import tell_versions
from rtj_sidecar.waits import happens

KEY = "directory"
ROOM_KEY = "room"
VANISHED_KEY = "vanished"
VANISHED_SECONDS = 60.0
MIN_BACK_OFF, MAX_BACK_OFF = 1.0, 30.0
SHARED_SECONDS = 5.0  # other pods' trainers may still be ending
WAITED_SECONDS = 600.0  # without a word from the operator, for other pods' trainers to end


class Looking:
    """One rank's eyes."""

    def __init__(self, station: Station, holding: Holding | None) -> None:
        self._at = station
        self._holding = holding
        self._back_off = MIN_BACK_OFF
        self._not_before = 0.0
        self._condemned: set[str] = set()
        self._marked: set[str] = set()  # also those that a roll-back left behind, on no line now
        self._lost = 0  # saves that vanished unpinned
        self._lost_at: float | None = None
        self._busy = asyncio.Lock()  # two looks at once would pin one save twice
        self.is_unsettled = False  # at the last look something still changed
        self._saw_all_end = False  # at the last look no trainer of any pod ran

    async def loop(self) -> None:
        """While a trainer runs: every `poll_seconds`, and at once when asked."""
        at = self._at
        while True:
            await happens(at.look_now, seconds=self._poll_seconds())
            at.look_now.clear()
            # On a shared directory other pods' trainers may write after this pod's has ended.
            shared = at.site.config.shared_directory and self._may_have_writers
            if at.is_training or shared:
                await self.look(gone=False)

    def _poll_seconds(self) -> float:
        poll = self._at.site.config.poll_seconds
        return min(poll, HURRY_SECONDS) if self._at.directory.sight.in_hurry else poll

    async def look(self, *, gone: bool) -> list[LocalSave]:
        """One look; returns the saves that are newly pinned. `gone`: no trainer can write."""
        at = self._at
        if not at.touches_directory:
            self._answer(at.question, ())  # whatever lies there is rank 0's to tell of
            return []
        if not gone and time.monotonic() < self._not_before:
            return []
        try:
            async with self._busy:
                question, writers = at.question, self.writers(gone=gone)
                found = await at.on_disk(at.directory.look, writers=writers)
                new = await self._pin_new(found, gone=writers.gone)
                await self._keep_room(found)
        except DirectoryProblem as problem:
            self._trouble(problem)
            return []
        except Exception as error:
            # A file that no reader understands must not end the sidecar: the others go on.
            log.exception("the directory could not be judged")
            self._trouble(DirectoryProblem(Reason.CHECKPOINT_CORRUPT, f"{type(error)}: {error}"))
            return []
        at.looks += 1
        self._saw_all_end = writers.gone
        self._tell_vanished(found)
        unfinished = tuple(
            unfinished_of(save, since=found.spells[save.root_key])
            for save, verdict in found.judged
            if verdict.status is Status.WRITING
        )
        self.is_unsettled = bool(unfinished)
        self._back_off = MIN_BACK_OFF
        at.reporter.heal(KEY)
        self.tell()
        self._answer(question, unfinished)
        if new:
            at.ship_now.set()
        return new

    def _answer(self, question: int, unfinished: tuple[Unfinished, ...]) -> None:
        """The look that has just ended began when that question was known."""
        at = self._at
        if not (at.is_training or at.settled):
            return  # a trainer that has not begun has nothing yet, and that says nothing
        if (question, unfinished) != (at.answered, at.unfinished):
            at.answered, at.unfinished = question, unfinished
            at.ship_now.set()

    async def _keep_room(self, found: Look) -> None:
        at, config = self._at, self._at.site.config
        volume = (
            PodVolume(config.pod_volume_bytes, config.keep_local) if config.pod_volume else None
        )
        try:
            eased = await at.on_disk(ease, at.directory, found.snapshot, pod_volume=volume)
        except (OSError, DirectoryProblem) as error:
            log.warning("no room could be made on %s: %s", at.site.path, error)
            return
        if eased.removed:
            log.info("removed %s: newer ones are durable", eased.removed)
        if eased.short:
            at.reporter.degrade(
                ROOM_KEY,
                Reason.DISK_FULL,
                f"{at.site.path} on rank {config.rank} has {eased.free:,} bytes free, "
                f"{eased.short:,} too few for the next save: make the volume larger, or let the "
                "trainer keep fewer checkpoints",
            )
        else:
            at.reporter.heal(ROOM_KEY)

    def _tell_vanished(self, found: Look) -> None:
        """Saves that nobody can ship any more: told until none was lost for a while."""
        now = time.monotonic()
        for save in found.vanished:
            self._lost += 1
            self._lost_at = now
            log.warning("step %s in %s vanished before it was pinned", save.step, save.root_key)
            self._at.reporter.degrade(
                VANISHED_KEY,
                Reason.SAVES_VANISH,
                f"rank {self._at.site.config.rank}: step {save.step} in {save.root_key} was "
                "overwritten or deleted by the trainer before it could be pinned, so it was never "
                f"shipped ({self._lost} so far). Save less often, keep at least two saves, or "
                "write each to a name of its own",
            )
        if self._lost_at is not None and now - self._lost_at > VANISHED_SECONDS:
            self._lost_at = None
            self._at.reporter.heal(VANISHED_KEY)

    def writers(self, *, gone: bool) -> Writers:
        """What is known of whoever may write the directory. `gone`: no trainer of this pod runs.

        Where all pods share it, one pod's open files say nothing of the others': their sidecars
        tell rank 0's what theirs have open, and when they have ended.
        """
        at = self._at
        state = at.supervisor
        listed = state.open_for_writing if state is not None else None
        open_paths = frozenset(listed) if listed is not None else None
        if not at.site.config.shared_directory:
            return Writers(open_paths, gone)
        others = self._holding.word.others_open() if self._holding is not None else None
        ended = self._holding is not None and self._holding.word.others_have_ended()
        return Writers(
            None if open_paths is None or others is None else open_paths | others,
            (gone or not at.is_training) and ended,
        )

    @property
    def _may_have_writers(self) -> bool:
        """Trainers of this attempt were told to go, or are being stopped, each in its own time."""
        directive = self._at.directive
        return directive is not None and directive.phase in (Phase.GO, Phase.STOP)

    @property
    def may_find_more(self) -> bool:
        """Whether another pod's trainer may yet finish a save in the directory that all share."""
        at = self._at
        if not at.site.config.shared_directory or not at.touches_directory:
            return False
        is_waited_for = (
            self._may_have_writers
            and not at.reporter.current.terminating
            and time.monotonic() - at.contact < WAITED_SECONDS
        )
        return self.is_unsettled or (is_waited_for and not self._saw_all_end)

    def _trouble(self, problem: DirectoryProblem) -> None:
        if problem.reason is Reason.CHECKPOINT_TORN:
            log.info("not pinned yet: %s", problem.message)
            return
        log.warning("%s: %s", problem.reason, problem.message)
        self._at.reporter.degrade(KEY, problem.reason, problem.message)
        self._not_before = time.monotonic() + self._back_off
        self._back_off = min(MAX_BACK_OFF, 2 * self._back_off)

    async def once_more(self) -> None:
        """The last look after the trainer ended; a directory that cannot be read is waited for."""
        at = self._at
        for _ in range(3):
            await self.look(gone=True)
            if not any(p.reason == Reason.DISK_FULL for p in at.reporter.current.degraded):
                break
            await asyncio.sleep(0.5)
        # On a shared directory the other pods' trainers may still be ending.
        deadline = time.monotonic() + SHARED_SECONDS
        while self.is_unsettled and time.monotonic() < deadline:
            await asyncio.sleep(0.25)
            await self.look(gone=True)

    async def _pin_new(self, found: Look, *, gone: bool) -> list[LocalSave]:
        at, new = self._at, []
        latest = max((i for i, (_, v) in enumerate(found.judged) if v.candidate), default=-1)
        for index, (save, verdict) in enumerate(found.judged):
            if verdict.status is Status.TORN and (gone or index < latest):
                self._condemn(save, verdict)
            if not verdict.candidate or at.directory.find(save) is not None:
                continue
            if not await at.on_disk(self._is_ours, save):
                continue
            if self._made_in() == at.attempt:
                verdict = replace(verdict, facts={**verdict.facts, **told_with(at, save.step)})
            local = await at.on_disk(
                pin_found,
                at.directory,
                save,
                verdict=verdict,
                attempt=self._made_in(),
                since=self._started_at(),
                noticed_at=found.spells.get(save.root_key),
            )
            log.info(
                "pinned %s step %s, %d bytes, %s",
                save.root_key,
                save.step,
                save.size,
                verdict.status,
            )
            new.append(local)
            self._count(local)
            tell_unfit(at, local)
            tell_versions(at, local)
        return new

    def _made_in(self) -> int:
        """The attempt whose trainer made what is new: the one that was told to go last."""
        return self._at.link.told_to_go()

    def _started_at(self) -> float:
        state = self._at.supervisor
        started = state.trainer.started_at if state is not None else None
        return started or 0.0

    def _is_ours(self, save: FoundSave) -> bool:
        at = self._at
        if at.link.told_to_go() == 0:
            return False  # no trainer ran in this pod: it was there before
        if save.identity in at.journal.entry.here_before:
            return False
        return at.directory.ledger.is_news(save)

    def _condemn(self, save: FoundSave, verdict: Judgement) -> None:
        # A torn save is told by its place and generation: it has no name in the run.
        name = f"{save.root_key}@{save.fingerprint[:8]}"
        self._condemned.add(name)
        self._at.reporter.add_verdict(
            Verdict(
                name=name,
                step=save.step,
                reason=Reason.CHECKPOINT_TORN,
                message=f"{save.root_key} on rank {self._at.site.config.rank}: {verdict.message}",
                at=time.time(),
            )
        )

    def _count(self, local: LocalSave) -> None:
        record = local.record
        at = self._at
        if record.attempt == at.attempt:
            at.progress = at.progress.with_checkpoint(
                step=record.facts.step, epoch=record.facts.epoch, now=record.seen_at
            )
            at.reporter.set(progress=at.progress_view())
            note_save(at, local)

    def _valid(self) -> int:
        """Saves that could be chosen: proved ones of the run, and what is pinned for it here."""
        at = self._at
        named = [c for c in at.candidates if c.invalid is None and c.full_state is not False]
        pinned = {save.record.name for save in at.directory.saves}
        waiting = [s for s in at.directory.saves if s.is_pending and s.record.name is None]
        return sum(c.durable or c.name in pinned for c in named) + len(waiting)

    def _invalid(self) -> int:
        """Saves of the run that bear a mark, and those found torn in this directory."""
        # What lies in an archive is out of reach, and nothing is wrong with it.
        nothing_wrong = (None, Reason.CHECKPOINT_ARCHIVED)
        for found in self._at.candidates:
            keep = self._marked.discard if found.invalid in nothing_wrong else self._marked.add
            keep(found.name)
        return len(self._marked) + len(self._condemned)

    def tell(self) -> None:
        """Refresh what the report says about checkpoints."""
        at = self._at
        view: CheckpointView = at.reporter.current.checkpoint
        saves = [save for save in at.directory.saves if not save.record.mirror]
        changes: dict[str, object] = {}
        changes["valid"] = self._valid()
        changes["invalid"] = self._invalid()
        if saves:
            changes["last_saved_step"] = saves[-1].record.facts.step
            changes["last_saved_at"] = saves[-1].record.ended_at
        changes |= asdict(costs_of(at, saves))
        pending = [save for save in saves if save.is_pending]
        changes["pending_saves"] = len(pending)
        changes["pending_bytes"] = sum(save.bytes for save in pending)
        entry = at.journal.entry
        changes["last_durable_step"] = entry.last_durable_step
        changes["last_durable_at"] = entry.last_durable_at
        changes["last_durable_name"] = entry.last_durable_name
        changes["uploaded_bytes"] = at.traffic.uploaded
        changes["restored_bytes"] = entry.restored_bytes
        changes["restore_total_bytes"] = entry.restore_total_bytes
        at.reporter.set(checkpoint=view.model_copy(update=changes))
        at.tell_pins()
