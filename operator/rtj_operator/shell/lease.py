"""One of several replicas works: the one that holds the Lease.

Another takes it over when it has not changed for its whole duration, by the taker's own clock, so
clocks of nodes play no part. The holder gives up well before that. Two that work at once do no
harm, for every write is guarded by version, UID or name; the Lease only saves the work and the
noise. Must never be made here: the chart makes it, so that no right to create Leases is needed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from rtj_operator.shell.api import ApiError, Raw

log = logging.getLogger(__name__)

# Of the duration: when it is renewed, and when a holder that could not renew it gives up.
RENEW_SHARE = 0.2
GIVE_UP_SHARE = 0.7


class Leases(Protocol):
    """Every call raises ApiError."""

    async def get_lease(self, *, namespace: str, name: str) -> Raw: ...

    async def put_lease(self, lease: Raw) -> Raw:
        """Replace it; 409 when it has another version."""
        ...


@dataclass(slots=True)
class Election:
    """`clock` is monotonic seconds, `wall` Unix seconds; `duration` in seconds, a whole number as
    the Lease's field is. `holder` tells this process from every other one."""

    leases: Leases
    namespace: str
    name: str
    holder: str
    duration: int = 10
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    trouble: str | None = None
    """Why the Lease could be neither taken nor seen with another; None once it could."""
    _seen: tuple[str, float] = ("", 0.0)  # version of the Lease, and since when we know it
    _read_at: float | None = None
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def silent_seconds(self) -> float:
        """Since the API server last answered a question for the Lease."""
        return self.clock() - (self._started if self._read_at is None else self._read_at)

    async def won(self) -> None:
        """Until this process holds the Lease."""
        waits_for = None
        while True:
            try:
                lease = await self._read()
                holder = _holder(lease)
                if self._may_take(lease):
                    await self._write(lease, holder=self.holder, taken=holder != self.holder)
                    log.info("leading", extra={"lease": self._path, "after": holder})
                    self.trouble = None
                    return
                self.trouble = None
                if holder != waits_for:
                    waits_for = holder
                    log.info("standing by", extra={"lease": self._path, "leader": holder})
            except ApiError as error:
                if error.status:
                    self._read_at = self.clock()  # it answers, and a restart changes no answer
                if not error.is_conflict:  # else another was first
                    self.trouble = f"no Lease {self._path}: {error}"
                    log.warning("no Lease yet", extra={"lease": self._path, "why": str(error)})
            await self.sleep(self.duration * RENEW_SHARE)

    async def lost(self) -> None:
        """Renew it; returns once it is another's, or could not be renewed for too long."""
        renewed = self.clock()
        while True:
            await self.sleep(self.duration * RENEW_SHARE)
            try:
                # What hangs must not outlast the right to work.
                async with asyncio.timeout(self.duration * GIVE_UP_SHARE / 2):
                    lease = await self._read()
                    if _holder(lease) != self.holder:
                        log.error("the Lease is another's", extra={"leader": _holder(lease)})
                        return
                    await self._write(lease, holder=self.holder, taken=False)
                renewed = self.clock()
            except (ApiError, TimeoutError) as error:
                log.warning("Lease not renewed", extra={"why": f"{type(error).__name__}: {error}"})
            if self.clock() - renewed > self.duration * GIVE_UP_SHARE:
                log.error("the Lease could not be renewed", extra={"lease": self._path})
                return

    async def give_back(self) -> None:
        """The next one need not wait for it to run out. Whether that works does not matter."""
        try:
            async with asyncio.timeout(2):
                lease = await self._read()
                if _holder(lease) == self.holder:
                    await self._write(lease, holder="", taken=False)
        except (ApiError, TimeoutError) as error:
            log.warning("Lease not given back", extra={"why": f"{type(error).__name__}: {error}"})

    @property
    def _path(self) -> str:
        return f"{self.namespace}/{self.name}"

    def _may_take(self, lease: Raw) -> bool:
        version, since = self._seen
        return _holder(lease) in ("", self.holder) or (
            lease["metadata"]["resourceVersion"] == version
            and self.clock() - since >= _duration(lease, default=self.duration)
        )

    async def _read(self) -> Raw:
        lease = await self.leases.get_lease(namespace=self.namespace, name=self.name)
        self._note(lease)
        return lease

    async def _write(self, lease: Raw, *, holder: str, taken: bool) -> None:
        spec = lease.get("spec") or {}
        now = datetime.fromtimestamp(self.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        written = {
            **spec,
            "holderIdentity": holder,
            "leaseDurationSeconds": self.duration,
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + int(taken),
        }
        if taken:
            written["acquireTime"] = now
        self._note(await self.leases.put_lease({**lease, "spec": written}))

    def _note(self, lease: Raw) -> None:
        self._read_at = self.clock()
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, self._read_at)


def _holder(lease: Raw) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _duration(lease: Raw, *, default: int) -> float:
    """What its holder promised; a Lease of an older release may have another one."""
    return float((lease.get("spec") or {}).get("leaseDurationSeconds") or default)
