"""Random schedules: a job, bad weather, then quiet. All from one seed, so that any can be replayed.

    python -m kit.schedules --count 10000          # prints the seeds, what was seen, who failed
    python -m kit.schedules --seed 1234            # that one alone, with its log

The laws are checked at every write and every start (`kit.simulated_laws`); after the weather the
job must come to rest and stay. Must never draw from anything but the seed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase
from rtj_operator.core.observed import JobSpec

from kit.doors import Doors
from kit.simulated import World
from kit.simulated_laws import own_name
from kit.simulated_operator import Operator
from kit.weather import FAULTS, HARMLESS, USUAL, Weather

PATIENCE = 900.0  # simulated seconds until it must be at rest; back-offs and time-outs are in it
STAYS = 40.0  # … and at rest it is looked at for so long


@dataclass
class Schedule:
    """One seed's job and weather, played. `log`: what the operator did, in words."""

    seed: int
    kinds: tuple[str, ...]
    replicas: int
    spares: int
    total_steps: int | None
    storm: float
    rate: float
    world: World
    weather: Weather
    doors: Doors
    log: list[str] = field(default_factory=list)

    @property
    def is_harmless(self) -> bool:
        return set(self.kinds) <= set(HARMLESS)

    def words(self) -> str:
        ends = f"ends at step {self.total_steps}" if self.total_steps else "goes on"
        return (
            f"seed {self.seed}: {self.replicas} ranks, {self.spares} spares, {ends}; a storm of "
            f"{self.storm:.0f} s, {self.rate:.3f} a tick, of {', '.join(self.kinds)}"
        )


def drawn(seed: int) -> Schedule:
    draw = random.Random(f"schedule {seed}")
    kinds: tuple[str, ...] = draw.choice(
        [USUAL, USUAL, tuple(draw.sample(sorted(FAULTS), 3)), HARMLESS]
    )
    total = draw.choice([None, None, None, draw.randrange(20, 80)])
    replicas = draw.choice([1, 2, 2, 3, 4])
    spec = JobSpec(
        replicas=replicas,
        spares=(spares := draw.choice([0, 0, 0, 1, 2])),
        run_id="ns/gpt",
        template_hash="h",
        max_restarts=1000,
        obeys_stop=draw.random() < 0.3,
    )
    world = World(
        spec=spec,
        total_steps=total or 1_000_000,
        save_every=draw.choice([2, 4, 8, 16]),
        victims_exit_after=draw.choice([5.0, 5.0, 0.5, None]),
    )
    rate = draw.choice([0.01, 0.02, 0.04])
    return Schedule(
        seed=seed,
        kinds=kinds,
        replicas=replicas,
        spares=spares,
        total_steps=total,
        storm=draw.uniform(20, 80),
        rate=rate,
        world=world,
        weather=Weather(world, draw=draw, kinds=kinds, rate=rate),
        doors=Doors(draw),
    )


def drive(
    world: World, *, seed: int, storm: float, quiet: float, kinds: Sequence[str] = USUAL
) -> tuple[Operator, Weather]:
    """A storm over a world of the caller's own, then quiet under a new operator."""
    doors = Doors(random.Random(seed))
    weather = Weather(world, draw=doors.draw, kinds=kinds)
    operator = Operator(
        world, drop_hint=doors.drops_hint, more_hint=doors.repeats_hint, stale=doors.reads_stale
    )
    world.gate, world.after = doors.before_write, doors.after_write
    end = world.now + storm
    while world.now < end:
        weather.tick()
        operator.tick()
    world.gate = world.after = lambda what: None
    weather.clear()
    operator = Operator(world, log=operator.log)
    operator.run(quiet)
    return operator, weather


def play(seed: int) -> Schedule:
    """Raises LawBroken or AssertionError, with the schedule's words and the log's end."""
    schedule = drawn(seed)
    try:
        _storm(schedule)
        settled(schedule)
    except AssertionError as error:
        tail = "\n".join([*schedule.weather.said, *schedule.log[-40:]])
        raise type(error)(f"{schedule.words()}\n{tail}\n{error}") from error
    return schedule


def _storm(schedule: Schedule) -> None:
    world, doors = schedule.world, schedule.doors
    operator = Operator(
        world,
        log=schedule.log,
        drop_hint=doors.drops_hint,
        more_hint=doors.repeats_hint,
        stale=doors.reads_stale,
        doubt=lambda: doors.draw.random() < 0.02,
    )
    world.gate, world.after = doors.before_write, doors.after_write
    end = world.now + schedule.storm
    while world.now < end:
        schedule.weather.tick()
        operator.tick()
    world.gate = world.after = lambda what: None
    schedule.weather.clear()


def settled(schedule: Schedule) -> None:
    """Under a new operator, and with nothing going wrong any more, it ends or comes to rest, and
    stays so; faults that harm nobody have cost nobody his attempt."""
    world = schedule.world
    operator = Operator(world, log=schedule.log)
    rest = Rest(world)
    operator.run_until(lambda: world.state.is_terminal or rest.is_reached(), within=PATIENCE)
    failed = world.state.condition(ConditionType.FAILED)
    if failed is not None and failed.status == "True":
        # Two kills for want of memory look alike, and to try a third time would be wrong.
        assert failed.reason == Reason.DETERMINISTIC_FAILURE, failed
        assert schedule.weather.counts["oom"] > 1, failed
        operator.run_until(lambda: not world.pods, within=PATIENCE)
    elif schedule.total_steps is not None:
        operator.run_until(lambda: world.state.is_terminal and not world.pods, within=PATIENCE)
        assert world.state.phase == JobPhase.SUCCEEDED, world.state.phase
        assert world.state.completions == 1, "a success is counted once"
        operator.run(STAYS)
        writes = world.writes
        operator.run(STAYS)
        assert world.writes == writes, "a finished job is written to"
    else:
        step, attempt = world.state.progress.step or 0, world.state.attempt
        operator.run(STAYS)
        assert world.state.attempt == attempt, "it does not stay"
        assert (world.state.progress.step or 0) > step, "it does not train"
        assert is_at_rest(world), "it does not stay at rest"
    if schedule.is_harmless:
        assert world.state.starts == 1, "the gang was restarted for a fault that harms nobody"
    world.store.check_lineage()
    never_below(world)


@dataclass
class Rest:
    """Reached once the same attempt was at rest and has trained on since."""

    world: World
    attempt: int = 0
    step: int = 0

    def is_reached(self) -> bool:
        status = self.world.state
        pods = self.world.pods.values()
        leaving = any(p.deleting_since is not None for p in pods)
        hangs = any(p.trainer is not None and p.trainer.hung is not None for p in pods)
        if leaving or hangs or not is_at_rest(self.world):
            self.attempt = 0
            return False
        if status.attempt != self.attempt:
            self.attempt, self.step = status.attempt, status.progress.step or 0
        return (status.progress.step or 0) > self.step + 2


def is_at_rest(world: World) -> bool:
    """It trains, no stop is agreed, its pods are those that are recorded, and its spares wait."""
    status, stop = world.state, world.state.stop
    if status.phase != JobPhase.RUNNING or status.current is None:
        return False
    if stop is not None and stop.attempt == status.attempt and stop.step is not None:
        return False
    if status.current.first_step_at is None or status.progress.step is None:
        return False
    own = {own_name(world, rank) for rank in range(world.spec.replicas)}
    ready = status.spares.ready if status.spares is not None else 0
    return ready == world.spec.spares and own == {
        p.name for p in world.pods.values() if not p.waits
    }


def never_below(world: World) -> None:
    """What status calls durable is in the store's line, or was condemned."""
    name = world.state.checkpoint.last_durable_name
    line = {c.name for c in world.store.candidates() if c.durable}
    known = {s.name for s in world.store.saves}
    assert name is None or name in known, f"{name} is durable and not in the store"
    assert name is None or name in line or world.state.resume is not None


def _tried(seed: int) -> tuple[int, str | None, Counter[str]]:
    try:
        done = play(seed)
    except Exception:
        return seed, traceback.format_exc(limit=-3), Counter()
    return seed, None, done.weather.counts + done.doors.counts


def _all(seeds: range, *, workers: int) -> Iterator[tuple[int, str | None, Counter[str]]]:
    if workers == 1:
        yield from map(_tried, seeds)
        return
    with multiprocessing.Pool(workers) as pool:
        yield from pool.imap_unordered(_tried, seeds, chunksize=8)


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit.schedules", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one alone, and print its log")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        schedule = play(options.seed)
        print(schedule.words(), *schedule.weather.said, *schedule.log, sep="\n")
        return 0
    seeds = range(options.first, options.first + options.count)
    print(f"seeds {seeds.start} to {seeds.stop - 1}", flush=True)
    began, seen, failed = time.monotonic(), Counter[str](), []
    for done, (seed, error, counts) in enumerate(_all(seeds, workers=options.workers), 1):
        seen += counts
        if error is not None:
            failed.append(seed)
            print(f"--- seed {seed} FAILED; again: python -m kit.schedules --seed {seed}\n{error}")
        if done % 500 == 0 or done == options.count:
            passed = time.monotonic() - began
            print(f"{done} schedules in {passed:.0f} s, failed: {failed or 'none'}", flush=True)
    for name, count in sorted(seen.items()):
        print(f"{count:8d} x {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
