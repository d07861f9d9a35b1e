"""Keeps the node ledger in one ConfigMap of the operator's own namespace, and answers from memory.

What is newly counted is written within a second or two, guarded by the version that was read; what
a person changed in it meanwhile is taken over. Where it cannot be read or written the ledger lives
in memory, and that is logged: no training waits for it. Must never write a mark that no job's
status or node's object shows, and never anything but that one ConfigMap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from rtj_operator.core import node_records
from rtj_operator.core.node_ledger import (
    Advice,
    Mark,
    NodeFacts,
    NodeLedger,
    advice,
    counted,
    is_known,
    score_of,
    with_marks,
)
from rtj_operator.shell.api import ApiError, Cluster

log = logging.getLogger(__name__)

GATHER_SECONDS = 1.0  # faults come together: one write for all of them
READ_SECONDS = 60.0
ADVICE_SECONDS = 2.0  # in a large cluster it costs milliseconds
MAX_FRESH = 10_000
SCORE_NAME = "training_node_fault_score"
SCORE_MEANING = (
    "Faded weight of the faults that point at a node, over all jobs; new pods keep off a node from "
    "1.5 on."
)
AVOIDED_NAME = "training_node_avoided"
AVOIDED_MEANING = "1 for each node that new pods of the jobs keep off now."


class KeptLedger:
    """`facts` gives what nodes say of themselves now; `name` is the ConfigMap's, None to keep the
    ledger in memory alone. `clock` gives Unix seconds."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        facts: Callable[[], Mapping[str, NodeFacts]],
        namespace: str | None,
        name: str | None,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._place = (namespace, name) if namespace and name else None
        self._clock = clock
        self._ledger = NodeLedger()
        self._fresh: dict[str, Mark] = {}  # by id: counted here, not yet in the ConfigMap
        self._counted: dict[str, None] = {}  # ids ever counted here, so a forgiven one stays so
        self._told: dict[str, str] = {}
        self._news = asyncio.Event()
        self._advised: tuple[float, tuple[Advice, ...]] | None = None

    def count(self, marks: Iterable[Mark]) -> None:
        """Take these in, each once; never waits."""
        now = self._clock()
        for mark in marks:
            if mark.id in self._counted or is_known(self._ledger, mark):
                continue
            if len(self._counted) >= MAX_FRESH:
                self._counted.pop(next(iter(self._counted)))
            self._counted[mark.id] = None
            self._fresh[mark.id] = mark
            self._ledger, self._advised = with_marks(self._ledger, [mark], now=now), None
            log.info(
                "counted against a node",
                extra={"node": mark.node, "reason": mark.reason, "weight": mark.weight},
            )
            self._news.set()

    def advice(self) -> tuple[Advice, ...]:
        """Who is avoided, at most two seconds old."""
        now = self._clock()
        if self._advised is None or not 0 <= now - self._advised[0] < ADVICE_SECONDS:
            self._advised = (now, advice(self._ledger, self._facts(), now=now))
        return self._advised[1]

    async def load(self) -> None:
        """Read what was kept. Never raises: without it the ledger begins empty."""
        await self._meet(write=False)

    async def run(self) -> None:
        """Write what is new, and read now and then what a person changed."""
        while True:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._news.wait()
                await asyncio.sleep(GATHER_SECONDS)
            except TimeoutError:
                pass
            self._news.clear()
            await self._meet(write=bool(self._fresh))

    async def _meet(self, *, write: bool) -> None:
        """What is kept and what is counted here become one, there and here."""
        if self._place is None:
            return
        namespace, name = self._place
        try:
            found = await self._cluster.get_config_map(namespace=namespace, name=name)
            if found is None:
                log.warning(
                    "node ledger kept in memory only",
                    extra={"why": f"there is no ConfigMap {namespace}/{name}: create it"},
                )
                return
            data = dict(found.get("data") or {})
            kept, unreadable = node_records.read(data)
            self._tell(unreadable)
            now, fresh = self._clock(), dict(self._fresh)
            ledger = with_marks(kept, fresh.values(), now=now)
            if write:
                found["data"] = {
                    **{key: data[key] for key in unreadable if key not in ledger.marks},
                    **node_records.written(ledger),
                }
                await self._cluster.put_config_map(found)
                for mark_id in fresh:
                    self._fresh.pop(mark_id, None)
            self._ledger = with_marks(ledger, self._fresh.values(), now=now)
            self._advised = None
        except ApiError as error:
            if error.is_conflict:
                self._news.set()  # what somebody else wrote is read with the next try
            else:
                log.warning("node ledger not kept now", extra={"why": str(error)})

    def _tell(self, unreadable: Mapping[str, str]) -> None:
        for node, why in unreadable.items():
            if self._told.get(node) != why:
                log.warning(
                    "a node's record cannot be read: remove its key",
                    extra={"node": node, "why": why},
                )
        self._told = dict(unreadable)

    def collect(self) -> Iterator[Metric]:
        """The series, made at each scrape."""
        now, facts = self._clock(), self._facts()
        scores = GaugeMetricFamily(SCORE_NAME, SCORE_MEANING, labels=("node",))
        for node, marks in self._ledger.marks.items():
            left = counted(marks, facts.get(node), now=now)
            if left and (not facts or node in facts):
                scores.add_metric([node], round(score_of(left, now=now), 4))
        yield scores
        avoided = GaugeMetricFamily(AVOIDED_NAME, AVOIDED_MEANING, labels=("node",))
        for each in self.advice():
            avoided.add_metric([each.node], 1)
        yield avoided
