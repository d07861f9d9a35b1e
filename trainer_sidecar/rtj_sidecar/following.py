"""Follows what the trainer prints and writes of its progress, for the report.

Must never hold up the loop on a disk, and never take a line that it cannot read for a step.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from rtj_api import contract
from rtj_api.reasons import Reason

from rtj_sidecar.costs import note_sign
from rtj_sidecar.hanging import watch
from rtj_sidecar.station import Station, log
from rtj_sidecar.trainer.bars import Shown
from rtj_sidecar.trainer.losses import check
from rtj_sidecar.trainer.signs import Sign, read_line, read_progress_line
from rtj_sidecar.verifying import verify


async def follow_progress(at: Station) -> None:
    """Until cancelled."""
    while True:
        known = at.progress.first_step_at is not None
        await asyncio.sleep(0.5 if known else 0.05)
        follower, extra = at.log_lines, at.progress_lines
        if follower is None or extra is None:
            continue
        lines = await asyncio.to_thread(follower.lines)
        told = await asyncio.to_thread(extra.lines)
        if follower is not at.log_lines:
            continue
        now, progress, unread = time.time(), at.progress, False
        losses = at.losses
        printed: list[tuple[Sign, int | None]] = []
        written: list[Sign] = []
        for line in lines:
            at.shown, said = fresh(at.shown, read_line(line))
            progress = progress.with_log(said, now=now)
            losses = losses.with_log(said.loss)
            printed.append((said, progress.log.step))
        for line in told:
            sign = read_progress_line(line)
            if sign is None:
                unread = True
                at.reporter.degrade(
                    "progress",
                    Reason.PROGRESS_FILE_UNREADABLE,
                    f"{contract.ENV_PROGRESS_FILE}: not a JSON object with step or loss: "
                    f"{line[:80]!r}",
                )
            else:
                progress = progress.with_file(sign, now=now)
                losses = losses.with_file(sign.loss)
                written.append(sign)
        if told and not unread:
            at.reporter.heal("progress")
        at.progress, at.losses = progress, losses
        sources = (extra, follower) if told else (follower,) if lines else ()
        for source in sources[:1]:
            note_sign(at, told_at=min(now, source.written_at or now))
        at.steps = at.steps.with_log(printed).with_file(written)
        watch(at, lines, now=now)
        _compare(at)
        if lines or told:
            verify(at)
        at.reporter.set(progress=at.progress_view())


def fresh(shown: Shown, said: Sign) -> tuple[Shown, Sign]:
    """The line without a loss that its progress bar only shows again."""
    if said.total is None or said.loss is None or said.step is None:
        return shown, said
    shown, is_new = shown.with_line(said.step, said.loss)
    return shown, said if is_new else replace(said, loss=None)


def _compare(at: Station) -> None:
    """The first losses after a resume, once: what comes later is the new attempt's own affair."""
    entry = at.journal.entry
    if entry.resume is None or entry.resume.scratch or not at.is_after_go:
        return
    if entry.loss_check is None:
        found = check(entry.loss_band, at.losses.first)
        if found is None:
            return
        at.journal.note(loss_check=found)
        log.info("losses after the resume: %s", found.dump())
    at.reporter.set(loss_check=at.journal.entry.loss_check)
