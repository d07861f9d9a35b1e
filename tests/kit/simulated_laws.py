"""Laws that the simulated world checks at each start of a trainer and each write of status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtj_api import contract, wire
from rtj_api.status import Status, TimeLedger

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod


class LawBroken(AssertionError):
    """The operator did what it must never do."""


def check_start(world: World, pod: Pod, directive: wire.Directive) -> None:
    """Called when a trainer starts: the laws about starts hold, or LawBroken."""
    resume = directive.resume
    assert resume is not None
    key = (directive.attempt, pod.rank, "start")
    world.trainer_starts[key] = world.trainer_starts.get(key, 0) + 1
    if world.trainer_starts[key] > 1:
        raise LawBroken(f"two trainers of rank {pod.rank} in attempt {directive.attempt}")
    if pod in world.ghosts:
        return  # A zombie is fenced off, and knows of no later save or attempt.
    name = "scratch" if resume.scratch else resume.name
    if not directive.fast:
        for other in world.pods.values():
            if other.accepted is None or other.accepted.attempt != directive.attempt:
                continue
            if other.restored.get(directive.attempt) != name:
                raise LawBroken(f"{pod.name} starts before {other.name} restored {name}")
        restored = {
            p.rank for p in world.pods.values() if p.restored.get(directive.attempt) == name
        }
        ranks = set(range(directive.world_size))
        gone = ranks - restored
        current = {r for r in ranks if _has_live_pod(world, r)}
        if gone & current:
            raise LawBroken(f"{pod.name} starts before ranks {gone & current} restored {name}")
    if pod.restored.get(directive.attempt) != name:
        raise LawBroken(f"{pod.name} starts without having restored {name}")
    if resume.scratch and world.store.saves and not world.allow_scratch:
        raise LawBroken("step 0 although a save was durable")
    check_size(world, directive)
    state = world.state
    if state.attempt == directive.attempt and not state.is_started:
        raise LawBroken("a trainer starts before the start was recorded")


def check_size(world: World, directive: wire.Directive) -> None:
    """A trainer is told the recorded size of its gang, and a step takes the same samples at any."""
    wish, said = world.spec.elastic, directive.batches
    if wish is None:
        if directive.world_size != world.spec.replicas:
            raise LawBroken(f"{directive.world_size} pods train and {world.spec.replicas} should")
        return
    if directive.world_size not in wish.sizes or said is None:
        raise LawBroken(f"{directive.world_size} pods train, which is no allowed size")
    if wish.batch is not None:
        at_once = directive.world_size * wish.batch.procs * wish.batch.micro
        if (said.accumulation or 0) * at_once != wish.batch.whole:
            raise LawBroken(f"a step of {directive.world_size} pods takes other samples: {said}")


def own_name(world: World, rank: int) -> str:
    """The name of the rank's own pod by what is recorded."""
    state, uid = world.state, world.job_uid
    for stand_in in state.stand_ins:
        if stand_in.rank == rank:
            spare, made_in = stand_in.spare, stand_in.made_in
            return contract.spare_name(job="gpt", spare=spare, made_in=made_in, job_uid=uid)
    made_in = state.placements[rank]
    return contract.pod_name(job="gpt", rank=rank, made_in=made_in, job_uid=uid)


def check_directive(pod: Pod, directive: wire.Directive) -> None:
    """Called when one is written: a pod plays one rank for as long as it lives, or LawBroken."""
    if pod.directive is not None and pod.directive.rank != directive.rank:
        raise LawBroken(f"{pod.name}: rank {pod.directive.rank}, now {directive.rank}")
    if pod.spare is None and directive.rank != pod.rank:
        raise LawBroken(f"{pod.name} is told of rank {directive.rank}")


def _has_live_pod(world: World, rank: int) -> bool:
    pod = world.pods.get(own_name(world, rank))
    return pod is not None and pod.deleting_since is None


def check_status(world: World, old: Status, new: Status) -> None:
    rising(old, new)
    names = [(s.spare, s.made_in) for s in new.stand_ins]
    if len(set(names)) < len(names) or len({s.rank for s in new.stand_ins}) < len(names):
        raise LawBroken(f"a spare plays two ranks, or two spares play one: {new.stand_ins}")
    if new.budgets.restarts_since_progress > world.spec.max_restarts:
        raise LawBroken("the budget was exceeded")
    ledger = new.ledger
    if ledger is None:
        raise LawBroken("a status was written without its ledger")
    if ledger.since != world.created_at or ledger.until > world.now:
        raise LawBroken(f"the ledger runs from {ledger.since} to {ledger.until}")
    is_open = new.is_started and not new.is_terminal and new.hold is None
    if not is_open and not old.is_terminal and ledger.until != world.now:
        raise LawBroken(f"the ledger ends at {ledger.until}, at {world.now}")


def rising(old: Status, new: Status) -> None:
    """What never goes back nor jumps from one version of status to the next; else LawBroken."""

    def rises(what: str, a: int, b: int) -> None:
        if b < a:
            raise LawBroken(f"{what} went back from {a} to {b}")

    rises("attempt", old.attempt, new.attempt)
    rises("starts", old.starts, new.starts)
    rises("restarts", old.restarts, new.restarts)
    rises("failures", old.failures, new.failures)
    rises("completions", old.completions, new.completions)
    if new.attempt > old.attempt + 1:
        raise LawBroken("attempt jumped")
    if new.starts > old.starts + 1 or new.restarts > old.restarts + 1:
        raise LawBroken("a start was counted twice in one write")
    if old.is_terminal and (old.attempt, old.starts) != (new.attempt, new.starts):
        raise LawBroken("a finished job was started again")
    keeps_time(old.ledger, new.ledger)
    step, was = new.checkpoint.last_durable_step, old.checkpoint.last_durable_step
    if was is not None and (step or 0) < was and new.resume == old.resume:
        raise LawBroken(f"lastDurableStep went back from {was} to {step} without a decision")


def keeps_time(old: TimeLedger | None, new: TimeLedger | None) -> None:
    """Its buckets sum to the time it covers, and none ever falls; else LawBroken."""
    if new is None:
        if old is not None:
            raise LawBroken("the ledger is gone")
        return
    spent = new.seconds.model_dump()
    whole = round(new.until * 1e6) - round(new.since * 1e6)
    if sum(round(value * 1e6) for value in spent.values()) != whole:
        raise LawBroken(f"the ledger does not sum to {whole / 1e6} s: {spent}")
    before = old.seconds.model_dump() if old is not None else {}
    fallen = [name for name, value in spent.items() if value < before.get(name, 0.0)]
    if fallen:
        raise LawBroken(f"the ledger's {fallen} fell: {before} -> {spent}")
    if old is not None and (old.since != new.since or new.until < old.until):
        raise LawBroken("the ledger's time went back")
