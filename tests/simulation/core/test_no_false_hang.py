"""Two simulated weeks of slow saves, long steps, silent evaluations and preemptions: nobody is
taken for hung who is not, and who hangs is found in time. By the rules of sidecar and operator."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from rtj_api.rules.hang import Hang, Pace, Stall, Standing, hanging, p99
from rtj_sidecar.trainer.life import Life, silence

DAY = 86_400.0
PREEMPTIONS = 40
LOOK = 0.5  # seconds between two looks of a sidecar


@dataclass(frozen=True)
class Stretch:
    """What the gang does for so long. `printer`, `other`: how rank 0 and rank 1 stand in it."""

    seconds: float
    printer: Standing = Standing.WORKING
    other: Standing = Standing.WORKING
    is_step: bool = False
    saves: bool = False  # rank 0 writes a save that moves
    blocked: bool = False  # … that does not move: its disk does not answer


@dataclass
class Kind:
    """A way to train: seconds between two lines with a step, and of a save; every how many."""

    step: Callable[[random.Random], float]
    save: Callable[[random.Random], float]
    every: int
    still: bool = False  # its processes do nothing while a GPU computes
    evaluates: Callable[[random.Random], float] | None = None
    waits_for_data: Callable[[random.Random], float] | None = None
    days: float = 14


KINDS = {
    "a line each second, saves of minutes": Kind(
        step=lambda r: r.lognormvariate(0, 0.2),
        save=lambda r: r.uniform(5, 1500),
        every=400,
        days=1,
    ),
    "a line each minute, saves of minutes": Kind(
        step=lambda r: 60 * r.lognormvariate(0, 0.2), save=lambda r: r.uniform(5, 1500), every=30
    ),
    "steps of minutes without a processor": Kind(
        step=lambda r: r.uniform(60, 240), save=lambda r: r.uniform(30, 900), every=20, still=True
    ),
    "silent evaluations by rank 0": Kind(
        step=lambda r: r.uniform(10, 40),
        save=lambda r: r.uniform(1, 30),
        every=30,
        evaluates=lambda r: r.uniform(60, 1500),
    ),
    "data that comes late": Kind(
        step=lambda r: r.uniform(20, 60),
        save=lambda r: r.uniform(1, 60),
        every=20,
        waits_for_data=lambda r: min(28.0, r.expovariate(1 / 3)),
    ),
}


@dataclass
class Ranks:
    """Two ranks' sidecars: rank 0's trainer prints, rank 1's does not."""

    lives: list[Life] = field(default_factory=lambda: [Life(), Life()])
    now: float = 1_000_000.0
    step: int = 0

    def begin(self) -> None:
        self.lives = [life.begun(now=self.now) for life in self.lives]

    def live(self, stretch: Stretch) -> Hang | None:
        """Looks at the end of it, when the silence is longest, and as it begins to be told."""
        began = self.now
        standings = (stretch.printer, stretch.other)
        for rank, standing in enumerate(standings):
            fell = None if standing is Standing.WORKING else began
            self.lives[rank] = self.lives[rank].with_stillness(fell, now=began + LOOK)
        if stretch.saves or stretch.blocked:
            moves = stretch.saves
            at = began + stretch.seconds if moves else began
            self.lives[0] = self.lives[0].with_saving(now=at, moves=moves)
        self.now = began + stretch.seconds
        found = self.judged(standings)
        if stretch.is_step:
            self.step += 1
            life = self.lives[0].with_lines([f"step {self.step}"], now=self.now)
            self.lives[0] = life.with_step(self.step, now=self.now)
        return found

    def judged(self, standings: tuple[Standing, Standing]) -> Hang | None:
        stalls: dict[int, Stall | None] = {}
        for rank, (life, standing) in enumerate(zip(self.lives, standings, strict=True)):
            told = silence(life, standing=standing, now=self.now)
            stalls[rank] = None
            if told is not None:
                stalls[rank] = Stall(
                    standing=told.standing, since=told.since, pace=life.pace, fell_at=life.fell_at
                )
        hang = hanging(stalls)
        return hang if hang is not None and self.now >= hang.since + hang.limit else None


def weeks_of(kind: Kind, draw: random.Random) -> Iterator[list[Stretch]]:
    """Attempts, each as what its gang does, one after another."""
    whole = kind.days * DAY
    ends = [*sorted(draw.uniform(0, whole) for _ in range(PREEMPTIONS)), whole]
    begun = 0.0
    for end in ends:
        yield list(attempt(kind, draw, seconds=end - begun))
        begun = end


def attempt(kind: Kind, draw: random.Random, *, seconds: float) -> Iterator[Stretch]:
    spent = 0.0
    quiet = Standing.STILL if kind.still else Standing.WORKING
    yield Stretch(draw.uniform(5, 590), quiet, quiet, is_step=True)  # loads, compiles
    number = 0
    while spent < seconds:
        number += 1
        stretch = Stretch(kind.step(draw), quiet, quiet, is_step=True)
        spent += stretch.seconds
        yield stretch
        if kind.waits_for_data is not None and draw.random() < 0.05:
            yield Stretch(kind.waits_for_data(draw), Standing.STILL, Standing.STILL)
        if number % kind.every == 0:
            saving = kind.save(draw)
            yield Stretch(saving, Standing.WORKING, Standing.STILL, saves=True)
            stuck = draw.uniform(0, 600)
            yield Stretch(stuck, Standing.WORKING, Standing.STILL, blocked=True)
            spent += saving + stuck
        if kind.evaluates is not None and number % (3 * kind.every) == 0:
            evaluation = kind.evaluates(draw)
            spent += evaluation
            yield Stretch(evaluation, Standing.WORKING, Standing.STILL)


@pytest.mark.parametrize("name", KINDS)
def test_nobody_is_taken_for_hung_and_a_hang_is_found(name: str) -> None:
    kind, draw, ranks = KINDS[name], random.Random(f"no false hang: {name}"), Ranks()
    steps = 0
    for stretches in weeks_of(kind, draw):
        ranks.begin()
        for stretch in stretches:
            found = ranks.live(stretch)
            assert found is None, f"after {steps} steps {stretch} was taken for {found}"
            steps += stretch.is_step
    assert steps > 1000
    usual = p99(ranks.lives[0].gaps)

    silent = ranks.now
    stopped = Stretch(max(6.0, 3 * usual) + LOOK, Standing.STOPPED, Standing.STILL)
    hang = ranks.live(stopped)
    assert hang is not None, "one that a signal has stopped"
    assert hang.rank == 0
    assert hang.since - silent <= LOOK
    assert ranks.now - silent <= max(10.0, 3 * usual + 1)

    ranks.begin()
    ranks.live(Stretch(3.0, is_step=True))
    survived = max(life.survived for life in ranks.lives)
    still = Stretch(max(10.0, 3 * usual, 2 * survived) + LOOK, Standing.STILL, Standing.STILL)
    assert ranks.live(still) is not None, "all of them wait for ever"


def test_what_two_weeks_teach_is_bounded() -> None:
    ranks = Ranks()
    ranks.begin()
    for _ in range(5000):
        ranks.live(Stretch(1.0, is_step=True))
    assert len(ranks.lives[0].gaps) == 200
    assert ranks.lives[0].pace == Pace(usual=1.0, longest=1.0, survived=0.0)
