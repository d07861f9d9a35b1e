"""Waiting for an event, for so long at most.

Exists because `asyncio.wait_for` of Python 3.11 can swallow a cancellation that comes in the same
turn as the event: a loop of the agent then never ended, and with it the agent, half alive.
"""

from __future__ import annotations

import asyncio


async def happens(event: asyncio.Event, *, seconds: float) -> bool:
    """Whether the event was set within that time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
