"""Lines of unequal width, and saves that come faster than they can be sent: in simulated time.

The holder's own rule (`next_naming`) and the ranks' own order (newest first, one at a time, as
`Uploading` has it) decide; only the lines, the looks and the clock are played. The same with real
sidecars: `benchmarks/ranks.py`.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field

import pytest
from rtj_sidecar.messages import SeenSave
from rtj_sidecar.naming import MAX_OPEN, Group, Heard, next_naming
from rtj_sidecar.runs.records import SaveFacts

GRACE, LONGEST = 2.0, 30.0
LOOK = 1.1  # seconds from a save to the latest rank's word of it


@dataclass
class Open:
    step: int
    at: float
    missing: set[int]


@dataclass
class Gang:
    """`slowest`: seconds that the slowest rank's line takes for its part; the fastest a tenth."""

    ranks: int
    interval: float
    slowest: float
    now: float = 0.0
    heard: list[Heard] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)
    durable: list[tuple[float, int]] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    skipped: int = 0
    _events: list[tuple[float, int, str, int, int]] = field(default_factory=list)
    _count: itertools.count[int] = field(default_factory=itertools.count)
    _busy: set[int] = field(default_factory=set)
    _known: bool = False

    def upload_seconds(self, rank: int) -> float:
        return self.slowest / (1 + 9 * ((rank - 1) % self.ranks) / max(1, self.ranks - 1))

    def run(self, *, until: float) -> None:
        for step in range(1, int(until / self.interval)):
            for rank in range(self.ranks):
                late = LOOK * ((rank * 7 + step * 3) % self.ranks) / self.ranks
                self._at(step * self.interval + late, "seen", rank, step)
        while self._events and self._events[0][0] <= until:
            self.now, _, what, rank, step = heapq.heappop(self._events)
            if what == "seen":
                self.heard.append(Heard(rank, seen(step), next(self._count), self.now))
            elif what == "sent":
                self._sent(rank, step)
            self._hold()
            self._send()

    def _at(self, when: float, what: str, rank: int, step: int) -> None:
        heapq.heappush(self._events, (when, next(self._count), what, rank, step))

    def _sent(self, rank: int, step: int) -> None:
        self._busy.discard(rank)
        for ship in self.open:
            if ship.step == step:
                ship.missing.discard(rank)
        for ship in [ship for ship in self.open if not ship.missing]:
            self.open.remove(ship)
            self.durable.append((self.now, ship.step))

    def _hold(self) -> None:
        while len(self.open) < MAX_OPEN:
            found = next_naming(
                heard=self.heard,
                open_ships=len(self.open),
                usual=range(self.ranks) if self._known else (),
                world_size=self.ranks,
                now=self.now,
                grace=LONGEST if self._known else GRACE,
                longest=LONGEST,
                lagging_since=min((s.at for s in self.open if s.missing), default=None),
            )
            if found.name is None:
                if found.wake_at is not None and found.wake_at > self.now:
                    self._at(found.wake_at, "look", 0, 0)
                return
            self._known = True
            for group in (found.name, *found.skipped):
                self._finish(group)
            self.skipped += len(found.skipped)
            step = found.name.facts.step
            assert step is not None
            self.named.append(step)
            self.open.append(Open(step, self.now, set(found.name.by_rank)))

    def _finish(self, group: Group) -> None:
        gone = {(rank, heard.save.fingerprint) for rank, heard in group.by_rank.items()}
        self.heard = [h for h in self.heard if (h.rank, h.save.fingerprint) not in gone]

    def _send(self) -> None:
        for rank in set(range(self.ranks)) - self._busy:
            ship = next((ship for ship in reversed(self.open) if rank in ship.missing), None)
            if ship is not None:
                self._busy.add(rank)
                self._at(self.now + self.upload_seconds(rank), "sent", rank, ship.step)


def seen(step: int) -> SeenSave:
    facts = SaveFacts(root_key=f"step-{step}", layout="dcp", step=step, full_state=True)
    return SeenSave(
        fingerprint=f"{step:032x}",
        attempt=1,
        ordinal=step,
        facts=facts,
        paths=[],
        bytes=1,
        seen_at=0.0,
    )


@pytest.mark.parametrize("ranks", [2, 64])
@pytest.mark.parametrize(("interval", "slowest"), [(2.0, 6.0), (5.0, 6.0), (3.0, 20.0)])
def test_a_step_becomes_durable_at_least_every_second_upload(
    ranks: int, interval: float, slowest: float
) -> None:
    gang = Gang(ranks, interval=interval, slowest=slowest)
    gang.run(until=8 * slowest)
    times = [when for when, _ in gang.durable]
    gaps = [after - before for before, after in itertools.pairwise([0.0, *times])]
    # The first also waits for the first save, and for a rank that nobody knows yet.
    assert gaps[0] <= interval + LOOK + GRACE + 2 * slowest
    assert max(gaps[1:]) <= 2 * slowest + 1e-6
    assert len(times) >= 3
    assert gang.named == sorted(set(gang.named)), "never an older one after a newer"
    assert gang.skipped or 2 * interval > slowest, "what cannot be sent is passed over"
    # And none is older than two uploads, a save and a look when it becomes durable.
    worst = max(when - step * interval for when, step in gang.durable)
    assert worst <= 3 * slowest + interval + LOOK + GRACE


def test_all_are_sent_where_the_lines_keep_up() -> None:
    gang = Gang(64, interval=10.0, slowest=4.0)
    gang.run(until=80.0)
    assert gang.skipped == 0
    assert [step for _, step in gang.durable] == list(range(1, 8))
