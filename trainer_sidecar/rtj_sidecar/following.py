"""Follows what the trainer prints and writes of its progress, for the report.

Must never hold up the loop on a disk, and never take a line that it cannot read for a step.
"""

from __future__ import annotations

import asyncio
import time

from rtj_api import contract
from rtj_api.reasons import Reason

from rtj_sidecar.station import Station
from rtj_sidecar.trainer.progress import read_line, read_progress_line


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
        for line in lines:
            progress = progress.with_log(read_line(line), now=now)
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
        if told and not unread:
            at.reporter.heal("progress")
        at.progress = progress
        at.reporter.set(progress=progress.view())
