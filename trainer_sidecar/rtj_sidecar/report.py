"""The one report of this sidecar, and who waits for it to change.

Belongs to the event loop's thread: every change is made there. Must never delay a change that a
decision rests on, and never put a secret into a report.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from rtj_api.reasons import Reason
from rtj_api.rules.news import is_news
from rtj_api.wire import Problem, Report, Verdict

from rtj_sidecar.waits import happens

PROGRESS_SECONDS = 1.0
VERDICTS_KEPT = 20
# Changes of these alone wake a long poll at most once in PROGRESS_SECONDS.
_SLOW = ("progress", "checkpoint", "transfers", "mirror")


class Reporter:
    """Holds the newest `Report`; `sequence` rises with every change that is told."""

    def __init__(self, *, job_uid: str, pod_uid: str, rank: int) -> None:
        self._report = Report(
            job_uid=job_uid,
            pod_uid=pod_uid,
            rank=rank,
            boot_id=uuid.uuid4().hex,
            # Above what an earlier process of this sidecar can have told.
            sequence=int(time.time() * 1000),
            sent_at=time.time(),
        )
        self._changed = asyncio.Event()
        self._told = 0.0
        self._told_report = self._report
        self._news = self._report.sequence  # of the newest report that told news
        self._held_back: asyncio.TimerHandle | None = None
        self._degraded: dict[str, Problem] = {}

    @property
    def current(self) -> Report:
        return self._report

    def set(self, **fields: Any) -> None:
        """Change fields of the report. A change that says nothing new tells nobody."""
        changed = {k: v for k, v in fields.items() if getattr(self._report, k) != v}
        if not changed:
            return
        self._report = self._report.model_copy(update=changed)
        if any(name not in _SLOW for name in changed):
            self._tell()
            return
        due = self._told + PROGRESS_SECONDS - time.monotonic()
        if due <= 0:
            self._tell()
        elif self._held_back is None:
            self._held_back = asyncio.get_running_loop().call_later(due, self._tell)

    def _tell(self) -> None:
        if self._held_back is not None:
            self._held_back.cancel()
            self._held_back = None
        self._told = time.monotonic()
        self._report = self._report.model_copy(update={"sequence": self._report.sequence + 1})
        if is_news(self._told_report, self._report):
            self._news = self._report.sequence
        self._told_report = self._report
        self._changed.set()
        self._changed = asyncio.Event()

    def add_verdict(self, verdict: Verdict) -> None:
        """Tell of a bad save, once for each name and reason."""
        known = {(v.name, v.reason) for v in self._report.verdicts}
        if (verdict.name, verdict.reason) not in known:
            self.set(verdicts=[*self._report.verdicts, verdict][-VERDICTS_KEPT:])

    def degrade(
        self, key: str, reason: Reason | str, message: str, *, retrying: bool = True
    ) -> None:
        """Something does not work, but training goes on. One entry for each `key`."""
        old = self._degraded.get(key)
        since = old.since if old is not None and old.reason == str(reason) else time.time()
        self._degraded[key] = Problem(
            reason=str(reason), message=message, since=since, retrying=retrying
        )
        self.set(degraded=list(self._degraded.values()))

    def heal(self, key: str) -> None:
        """What `key` told of works again."""
        if self._degraded.pop(key, None) is not None:
            self.set(degraded=list(self._degraded.values()))

    async def after(self, since: int | None, *, wait: float, quiet: float = 0.0) -> Report:
        """The report as soon as it tells more than `since` did: news at once, mere progress after
        `quiet` seconds; at the latest after `wait` seconds."""
        began = time.monotonic()
        while since is not None:
            has_progress = self._report.sequence != since
            # A sequence that never was is of another process: its reader knows nothing of this one.
            if has_progress and (self._news > since or since > self._report.sequence):
                break
            left = began + (min(quiet, wait) if has_progress else wait) - time.monotonic()
            if left <= 0:
                break
            await happens(self._changed, seconds=left)
        return self._report.model_copy(update={"sent_at": time.time()})
