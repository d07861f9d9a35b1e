"""Laws that the simulated world checks at each start of a trainer and each write of status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rtj_api import contract, wire
from rtj_api.reasons import Reason
from rtj_api.status import Status, TimeLedger
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import CreatePod, CreateSpare, PatchDirective, Plan
from rtj_operator.core.policy import Policy

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod


FREE = frozenset(
    {
        Reason.POD_DELETED,
        Reason.POD_EVICTED,
        Reason.POD_PREEMPTED,
        Reason.PREEMPTED_BY_QUEUE,
        Reason.POD_FAILED,
        Reason.NODE_LEAVING,
        Reason.NODE_LOST,
        Reason.NODE_NOT_READY,
        Reason.SIDECAR_LOST,
        Reason.DIRECTIVE_NOT_SEEN,
        Reason.RESTORE_FAILED,
        Reason.PREPARE_FAILED,
        Reason.PLACEMENT_TIMEOUT,
        Reason.STORE_UNREACHABLE,
    }
)
"""Causes that no program of the user's can make."""


class LawBroken(AssertionError):
    """The operator did what it must never do."""


def check_start(world: World, pod: Pod, directive: wire.Directive) -> None:
    """Called when a trainer starts: the laws about starts hold, or LawBroken."""
    one_trainer_a_rank(world, pod, directive)
    if pod in world.ghosts:
        return  # A zombie is fenced off, and knows of no later save or attempt.
    all_have_restored(world, pod, directive)
    never_scratch_by_accident(world, directive)
    check_size(world, directive)
    start_is_recorded(world, directive)


def one_trainer_a_rank(world: World, pod: Pod, directive: wire.Directive) -> None:
    """Never two trainers of one rank in one attempt."""
    key = (directive.attempt, pod.rank, "start")
    world.trainer_starts[key] = world.trainer_starts.get(key, 0) + 1
    if world.trainer_starts[key] > 1:
        raise LawBroken(f"two trainers of rank {pod.rank} in attempt {directive.attempt}")


def all_have_restored(world: World, pod: Pod, directive: wire.Directive) -> None:
    """No trainer starts before all ranks have restored the same save; on the fast path it has."""
    resume = directive.resume
    assert resume is not None
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


def never_scratch_by_accident(world: World, directive: wire.Directive) -> None:
    """A store that was not listed is unknown, never empty."""
    resume = directive.resume
    assert resume is not None
    if resume.scratch and world.store.saves and not world.allow_scratch:
        raise LawBroken("step 0 although a save was durable")


def start_is_recorded(world: World, directive: wire.Directive) -> None:
    """The point of no return is written before any trainer starts."""
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


def is_decided_first(world: World, action: CreatePod | CreateSpare | PatchDirective) -> None:
    """Decision before effect: the attempt of what is done now is in status already, and what a
    pod is told to restore was chosen there."""
    state = world.state
    told = action.directive if isinstance(action, PatchDirective) else None
    attempt = action.made_in if told is None else told.attempt  # type: ignore[union-attr]
    if attempt > state.attempt:
        raise LawBroken(f"{action} before attempt {attempt} was recorded")
    through_store = told is not None and told.through_store is not None
    if told is None or through_store or told.phase not in (wire.Phase.RESTORE, wire.Phase.GO):
        return
    if state.resume is None or state.resume.attempt < told.attempt:
        raise LawBroken(f"{action.pod} is told to {told.phase} before anything was chosen")  # type: ignore[union-attr]


def has_its_name(world: World, action: CreatePod | CreateSpare) -> None:
    """A pod's name is a function of job UID, rank or spare, and the attempt it is made in."""
    where: dict[str, Any] = {"job": "gpt", "made_in": action.made_in, "job_uid": world.job_uid}
    if isinstance(action, CreateSpare):
        name = contract.spare_name(spare=action.spare, **where)
    else:
        name = contract.pod_name(rank=action.rank, **where)
    if action.name != name:
        raise LawBroken(f"{action.name} should be {name}")


def waits_with_an_end(observed: Observed, plan: Plan) -> None:
    """Whatever is awaited, another look is due; only a job that is over awaits nothing."""
    job = observed.job
    over = job is None or job.deleting or job.status.is_terminal
    if not over and plan.wake_at is None:
        raise LawBroken(f"rule {plan.rule} waits without an end")
    if plan.wake_at is not None and plan.wake_at <= observed.now and plan.is_empty:
        raise LawBroken(f"rule {plan.rule} looks again at once, and has nothing to do")


def is_steady(observed: Observed, plan: Plan, *, policy: Policy) -> None:
    """`decide` is deterministic, the order of pods means nothing, it decides or acts."""
    if decide(observed, policy) != plan:
        raise LawBroken(f"rule {plan.rule} decides otherwise the second time")
    if decide(replace(observed, pods=observed.pods[::-1]), policy) != plan:
        raise LawBroken(f"rule {plan.rule} depends on the order of pods")
    if plan.actions and plan.status is not None:
        raise LawBroken(f"rule {plan.rule} decides and acts")


def comes_to_rest(plans: Sequence[Plan]) -> None:
    """At one moment the plan becomes empty: the world is as recorded."""
    if plans and not any(plan.is_empty for plan in plans):
        raise LawBroken(f"no rest: {[plan.rule for plan in plans]}")


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
    """Called when a status is written: the laws about what is recorded hold, or LawBroken."""
    rising(old, new)
    counted_once(world, new)
    a_spare_plays_one_rank(new)
    belongs_to_one_attempt(old, new)
    infrastructure_is_free(old, new)
    if new.budgets.restarts_since_progress > world.spec.max_restarts:
        raise LawBroken("the budget was exceeded")
    ledger_covers(world, old, new)


def counted_once(world: World, new: Status) -> None:
    """`starts` is the number of attempts that passed the point of no return, whoever crashed."""
    started = world.started | ({new.attempt} if new.is_started else set())
    if new.starts != len(started):
        raise LawBroken(f"{new.starts} starts are counted of attempts {sorted(started)}")


def a_spare_plays_one_rank(new: Status) -> None:
    names = [(s.spare, s.made_in) for s in new.stand_ins]
    if len(set(names)) < len(names) or len({s.rank for s in new.stand_ins}) < len(names):
        raise LawBroken(f"a spare plays two ranks, or two spares play one: {new.stand_ins}")


def belongs_to_one_attempt(old: Status, new: Status) -> None:
    """Timers and in-flight markers are the current attempt's; a new one begins with none."""
    current = new.current
    if current is None or new.is_terminal:
        return
    if current.attempt != new.attempt:
        raise LawBroken(f"attempt {new.attempt} has the marks of {current.attempt}")
    marks = (current.restored_at, current.training_at, current.first_step_at)
    begun = current.recorded_at
    if new.attempt > old.attempt and any(mark is not None and mark < begun for mark in marks):
        raise LawBroken(f"attempt {new.attempt} begins with marks of the one before: {current}")


def infrastructure_is_free(old: Status, new: Status) -> None:
    """What uses the user's budget is the user's: never a node, a pod's end or a store."""
    if new.budgets.restarts_since_progress <= old.budgets.restarts_since_progress:
        return
    causes = {new.current.cause} if new.current is not None else set()
    for record in reversed([r for r in new.attempts if r.attempt < new.attempt]):
        if record.started:
            break
        causes.add(record.cause)  # a try that never started hands its charge on
    if causes <= FREE:
        raise LawBroken(f"the user pays for {causes}")


def ledger_covers(world: World, old: Status, new: Status) -> None:
    """The ledger runs from the job's creation to now, unless an attempt is under way."""
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
