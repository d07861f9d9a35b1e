"""The marks of suspect saves: written when the operator suspects one, and when an older save has
proved it bad, or innocent. Rank 0 only.

The operator says in each go which saves are suspect; what it says no more is suspect no more. That
an older save got past the point is seen here as well (`rtj_api.rules.suspicion`). Must never hold
training up, and never condemn a save by any other proof.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from rtj_api.reasons import Reason
from rtj_api.rules.suspicion import has_got_past
from rtj_api.wire import Directive, Phase, Report

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.records import MarkKind, MarkRecord
from rtj_sidecar.runs.run import Run
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem

LOOK_SECONDS = 1.0
LAST_LOOK_SECONDS = 10.0
_WORDS = (MarkKind.SUSPECT, MarkKind.POISON, MarkKind.GOOD)


@dataclass(frozen=True, slots=True)
class Word:
    """A mark to write."""

    name: str
    kind: MarkKind
    reason: Reason
    message: str


def words_for(directive: Directive, report: Report) -> list[Word]:
    """What is to be said of the saves that this attempt passes over."""
    resume = directive.resume
    begun = resume.name if resume is not None and resume.name is not None else "nothing"
    words = []
    for suspect in directive.suspects:
        if suspect.name == begun:
            continue
        if suspect.is_proved or has_got_past(suspect.past_step, report):
            reached = "" if suspect.is_proved else f", and made step {report.progress.step}"
            text = f"an older save got past the point where it failed: {suspect.why}{reached}"
            words.append(Word(suspect.name, MarkKind.POISON, Reason.CHECKPOINT_POISON, text))
        else:
            text = f"{suspect.why}; attempt {directive.attempt} begins from {begun}"
            words.append(Word(suspect.name, MarkKind.SUSPECT, Reason.CHECKPOINT_SUSPECT, text))
    return words


def freed(history: History, directive: Directive, *, job_uid: str) -> list[Word]:
    """Of the saves that this job made suspect, those that its operator suspects no more."""
    now = {suspect.name for suspect in directive.suspects}
    words = []
    for save, marks in history.marks.items():
        said = [mark for mark in marks if mark.kind in _WORDS]
        name = _name(history, save)
        if not said or name is None or name in now or not _is_ours(said[-1], job_uid):
            continue
        text = f"an older save failed alike, so the cause lies elsewhere: {said[-1].message}"
        words.append(Word(name, MarkKind.GOOD, Reason.CHECKPOINT_CLEARED, text))
    return words


def _is_ours(mark: MarkRecord, job_uid: str) -> bool:
    by_rule = mark.reason == Reason.CHECKPOINT_SUSPECT
    return mark.kind is MarkKind.SUSPECT and by_rule and mark.by_job_uid == job_uid


def _name(history: History, save: keys.SaveId) -> str | None:
    manifest = history.manifests.get(save)
    return manifest.name if manifest is not None else None


class Suspects:
    """Belongs to the event loop's thread."""

    def __init__(self, station: Station) -> None:
        self._at = station
        self._said: set[tuple[int, str, MarkKind]] = set()
        self._busy = asyncio.Lock()  # no word is written twice
        self._cleared = 0  # the attempt for which it was looked whether any is suspect no more

    async def loop(self) -> None:
        """Until cancelled. A mark that the store does not take is tried again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def last_look(self) -> None:
        """Before the pod may end: its last save may be the proof, and became durable just now. A
        store that does not answer in time keeps nobody."""
        if self._at.directive is None or not self._at.directive.suspects:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_LOOK_SECONDS):
                await self.look()

    async def look(self) -> None:
        async with self._busy:
            await self._look()

    async def _look(self) -> None:
        at, directive = self._at, self._at.directive
        if at.run is None or directive is None or directive.phase is not Phase.GO:
            return
        if directive.rank != 0 or not at.may_publish or directive.through_store is not None:
            return
        try:
            if self._cleared != directive.attempt:
                for word in await asyncio.to_thread(_to_free, at.run, directive):
                    await self._say(at.run, word, attempt=directive.attempt)
                self._cleared = directive.attempt
            for word in words_for(directive, at.reporter.current):
                await self._say(at.run, word, attempt=directive.attempt)
        except StoreProblem as problem:
            log.warning("marks of suspect saves are not written yet: %s", problem)

    async def _say(self, run: Run, word: Word, *, attempt: int) -> None:
        key = (attempt, word.name, word.kind)
        if key in self._said:
            return
        await asyncio.to_thread(
            run.judging.mark,
            word.name,
            kind=word.kind,
            reason=word.reason,
            message=word.message,
            evidence={"attempt": attempt},
            fence=self._at.fence,
        )
        log.info("%s is marked %s: %s", word.name, word.kind, word.message)
        self._said.add(key)


def _to_free(run: Run, directive: Directive) -> list[Word]:
    if not run.judging.marks():
        return []  # most runs, most of the time: nothing more is read
    return freed(run.history(), directive, job_uid=directive.job_uid)
