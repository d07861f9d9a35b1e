"""What is known of nodes: the objects, read at most every few seconds, and their heartbeats.

A node's Lease says within seconds that its kubelet is gone, where condition Ready takes the best
part of a minute. Clocks of nodes differ from ours, so a Lease's time is corrected by the smallest
lag that was ever seen between its stamp and our reading it. Must never call a Lease stale that it
could not read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rtj_api.status import parse_time

from rtj_operator.core.node_ledger import NodeFacts
from rtj_operator.core.observed import NodeView
from rtj_operator.shell.api import ApiError, Cluster, Raw
from rtj_operator.shell.node_facts import node_facts
from rtj_operator.shell.taints import TaintTimes
from rtj_operator.shell.views import node_view

NODE_SECONDS = 10.0  # a node event makes it be read again at once
LEASE_SECONDS = 10.0  # kubelets renew every 10 s: reading more often in quiet times tells nothing
LEASE_SECONDS_IN_DOUBT = 2.0
STALE_SECONDS = 15.0  # a renewal and a half was missed; errs towards blaming the API server


@dataclass(frozen=True, slots=True)
class Lease:
    stamp: float  # its renewTime, by the node's clock
    lag: float  # smallest (our time - stamp) seen of this node

    @property
    def renewed_at(self) -> float:
        """By our clock. A node seen only once counts as renewed just then."""
        return self.stamp + self.lag


class Nodes:
    """Answers `views` for one pass. `clock` gives Unix seconds. Without `may_read` nothing is known
    of any node, and nothing is held against one."""

    def __init__(
        self, cluster: Cluster, *, clock: Callable[[], float], may_read: bool = True
    ) -> None:
        self._cluster = cluster
        self._may_read = may_read
        self._clock = clock
        self._objects: dict[str, tuple[float, Raw | None]] = {}
        self._leases: dict[str, Lease] = {}
        self._leases_at: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self._facts: dict[str, NodeFacts] = {}
        self._taints = TaintTimes()

    def changed(self, name: str, raw: Raw | None) -> None:
        """A watch said that something about this node is new; None: it is gone."""
        self._objects.pop(name, None)
        if raw is None:
            self._facts.pop(name, None)
            self._taints.forget(name)
        else:
            self._facts[name] = node_facts(raw)
            self._taints.saw(name, raw, now=self._clock())

    def facts(self) -> Mapping[str, NodeFacts]:
        """Of all nodes of the cluster, as the watch last showed them; empty until it has listed."""
        return self._facts

    async def views(self, names: Iterable[str], *, in_doubt: bool) -> Mapping[str, NodeView]:
        """`in_doubt`: something about the pods there looks dead, so fresh heartbeats count."""
        wanted = sorted(set(names))
        if not wanted or not self._may_read:
            return {}
        max_age = LEASE_SECONDS_IN_DOUBT if in_doubt else LEASE_SECONDS
        if in_doubt:
            await self._read_leases(max_age=max_age)
        elif self._age() > max_age and (self._reading is None or self._reading.done()):
            # Nobody waits for it: in quiet times it only teaches us the nodes' lags.
            self._reading = asyncio.create_task(self._read_quietly(max_age))
        objects = await asyncio.gather(*(self._object(name) for name in wanted))
        fresh = self._age() <= LEASE_SECONDS * 2
        return {
            name: node_view(
                name,
                raw,
                lease_renewed_at=(
                    self._leases[name].renewed_at if fresh and name in self._leases else None
                ),
                tainted_at=self._taints.since(name),
            )
            for name, raw in zip(wanted, objects, strict=True)
        }

    def stale_share(self) -> float:
        """Share of the cluster's Leases that look stale, 0..1: near 1 the API server is the one
        to blame."""
        if not self._leases:
            return 0.0
        now = self._clock()
        stale = sum(now - lease.renewed_at > STALE_SECONDS for lease in self._leases.values())
        return stale / len(self._leases)

    async def _object(self, name: str) -> Raw | None:
        known = self._objects.get(name)
        now = self._clock()
        if known is not None and now - known[0] <= NODE_SECONDS:
            return known[1]
        raw = await self._cluster.get_node(name)
        self._objects[name] = (now, raw)
        if raw is None:
            self._taints.forget(name)
        else:
            self._taints.saw(name, raw, now=now)
        return raw

    def _age(self) -> float:
        return float("inf") if self._leases_at is None else self._clock() - self._leases_at

    async def _read_quietly(self, max_age: float) -> None:
        # The pass that needs them asks again, and sees the error.
        with contextlib.suppress(ApiError):
            await self._read_leases(max_age=max_age)

    async def _read_leases(self, *, max_age: float) -> None:
        if self._age() <= max_age:
            return
        items = await self._cluster.list_leases()
        now = self._clock()
        leases: dict[str, Lease] = {}
        for item in items:
            name, text = item["metadata"]["name"], (item.get("spec") or {}).get("renewTime")
            if text is None:
                continue
            stamp = float(parse_time(text))
            known = self._leases.get(name)
            lag = now - stamp
            leases[name] = Lease(stamp=stamp, lag=min(lag, known.lag) if known else lag)
        self._leases, self._leases_at = leases, now
