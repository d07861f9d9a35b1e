"""Why an attempt cannot go on in this pod, and the wait that every step of one may need.

Must never blame another rank without naming it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rtj_api.reasons import Reason

from rtj_sidecar.station import Station
from rtj_sidecar.trainer.supervisor_link import is_stopped


class AttemptFailed(Exception):
    """The attempt cannot go on in this pod."""

    def __init__(
        self, reason: Reason, message: str, *, ranks: Sequence[int] = (), retrying: bool = False
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retrying = retrying  # another save may do
        self.ranks = list(ranks)  # whose pods are to blame, if not this one


async def until_stopped(at: Station, attempt: int) -> None:
    """Until the supervisor says that no trainer up to that attempt runs or will."""
    while not is_stopped(at.supervisor, up_to=attempt):
        await asyncio.sleep(0.005)
