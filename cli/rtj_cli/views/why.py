"""`rtj why`: what a job does or waits for, on what evidence, and what to do next. Pure.

The operator's own words come first: it saw the sidecars' reports, which nobody else does. Must
never state what neither the object nor its pods say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase, ResumeDecision

from rtj_cli.jobs import Raw, Seen
from rtj_cli.views.timeline import where
from rtj_cli.views.words import ago, clock, plural, remedy, span

MAX_EVIDENCE = 6
_COMMANDS = {
    Reason.NO_VALID_CHECKPOINT: (
        "rtj checkpoints list {job}: what is wrong with each save",
        "rtj allow-scratch {job}: the next start may be from nothing",
    ),
    Reason.RUN_IN_USE: ("rtj take-over {job}: only if the other job is certainly gone",),
    Reason.RUN_EXISTS: (
        "rtj restart {job}: go on with the existing run",
        "rtj allow-scratch {job}: begin at step 0 beside it",
    ),
    Reason.SUSPENDED: ("rtj resume {job}",),
}


@dataclass(frozen=True, slots=True)
class Explanation:
    headline: str
    evidence: tuple[str, ...]
    next: tuple[str, ...]

    def lines(self) -> list[str]:
        found = [self.headline, *(f"  - {each}" for each in self.evidence[:MAX_EVIDENCE])]
        return found + [f"  → {each}" for each in self.next[:3]]


def explain(job: Seen, *, pods: Sequence[Raw] = (), now: float) -> Explanation:
    """`pods`: raw, as far as they may be read."""
    if not job.is_looked_at:
        return _unseen(job, now=now)
    accepted = job.condition(ConditionType.ACCEPTED)
    if accepted is not None and accepted.status == "False":
        return Explanation(
            f"{job.full_name} is not accepted: {accepted.reason}",
            (accepted.message, *_change(job)),
            _next(job, accepted.reason),
        )
    status = job.status
    evidence = [*_attempt(job, now=now), *_pods(pods, now=now), *_trouble(job), *_change(job)]
    if status.is_terminal:
        evidence = [*_end(job, now=now), *_attempt(job, now=now)]
    reason = job.reason
    return Explanation(_headline(job, now=now), tuple(evidence), _next(job, reason))


def _unseen(job: Seen, *, now: float) -> Explanation:
    manager = job.spec.get("managedBy")
    if manager not in (None, contract.MANAGER):
        return Explanation(
            f"{job.full_name} is left to another manager",
            (f"spec.managedBy is {manager}, so this operator does nothing",),
            (f"ask {manager}, or apply the job anew without managedBy",),
        )
    return Explanation(
        f"{job.full_name} has not been looked at by any operator",
        (f"it was made {ago(job.created_at, now=now)} and has no status",),
        (
            "kubectl get deployments -A -l app.kubernetes.io/name=resumable-training-operator",
            "the operator's log says which namespaces it serves (RTJ_WATCH_NAMESPACES)",
        ),
    )


def _headline(job: Seen, *, now: float) -> str:
    status, name = job.status, job.full_name
    running = job.condition(ConditionType.RUNNING)
    said = "" if running is None else running.message
    hold = status.hold
    if status.pending_suspend is not None:
        since = span(now - status.pending_suspend.since)
        return f"{name} is about to be suspended; it has waited {since} for its next save"
    if hold is not None:
        what = "is suspended" if hold.reason == Reason.SUSPENDED else f"is held: {hold.reason}"
        return f"{name} {what} since {clock(hold.since)}: {hold.message}"
    if running is None:
        return f"{name} is {status.phase.value}"
    if running.status == "True":
        step = "no step yet" if status.progress.step is None else f"step {status.progress.step}"
        return f"{name} trains: attempt {status.attempt}, {step}"
    since = span(now - running.last_transition_time)
    if status.is_terminal:
        word = "is complete" if status.phase == JobPhase.SUCCEEDED else "has failed"
        return f"{name} {word}: {running.reason}: {said}"
    return f"{name} does not train (for {since}): {running.reason}: {said}"


def _attempt(job: Seen, *, now: float) -> Iterable[str]:
    """Why the current attempt is there, from where it goes on, and how far the saves are."""
    status = job.status
    current, resume, saves = status.current, status.resume, status.checkpoint
    if current is not None and current.attempt > 1:
        at = where(current.culprit)
        yield (
            f"attempt {current.attempt} was made {ago(current.recorded_at, now=now)} for "
            f"{current.cause}{f' ({at})' if at else ''}: {current.message}"
        )
    if current is not None and current.not_before is not None and current.not_before > now:
        yield f"back-off: the next start is not before {clock(current.not_before)}"
    if resume is not None and resume.attempt == status.attempt:
        yield f"it started{_begun(resume)}: {resume.reason}"
    if saves.last_durable_step is not None:
        yield (
            f"newest durable save: {saves.last_durable_name or '?'}, "
            f"step {saves.last_durable_step}, "
            f"{ago(saves.last_durable_time, now=now)}"
        )
    used = status.budgets.restarts_since_progress
    if used:
        yield f"{used} of {status.budgets.limit} restarts used without durable progress"


def _begun(resume: ResumeDecision) -> str:
    if resume.scratch:
        return " from step 0"
    if resume.name is None:
        return ""
    return f" from {resume.name}" + ("" if resume.step is None else f" (step {resume.step})")


def _pods(pods: Sequence[Raw], *, now: float) -> Iterable[str]:
    """What holds up a pod, one line a cause, with how many it is."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        for cause in _held_up(pod):
            found.setdefault(cause, []).append(str(pod["metadata"]["name"]))
    for cause, names in found.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"pod {names[0]}{more}: {cause}"


def _held_up(pod: Raw) -> Iterable[str]:
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"not placed: {condition.get('message') or condition.get('reason')}"
    containers = [*(status.get("initContainerStatuses") or ())]
    containers += status.get("containerStatuses") or ()
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason")
        if reason not in (None, "PodInitializing", "ContainerCreating"):
            told = waiting.get("message")
            yield f"{container['name']} waits: {reason}{f': {told}' if told else ''}"


def _trouble(job: Seen) -> Iterable[str]:
    status = job.status
    degraded = job.condition(ConditionType.DEGRADED)
    if degraded is not None and degraded.status == "True":
        yield f"Degraded: {degraded.reason}: {degraded.message}"
    fresh = job.condition(ConditionType.CHECKPOINT_FRESH)
    if fresh is not None and fresh.status == "False":
        yield f"CheckpointFresh is False: {fresh.reason}: {fresh.message}"
    if status.bisection is not None:
        found = status.bisection
        yield f"bisection {found.id}: {found.saves[found.trial]} is on trial"
    for suspect in status.suspicions:
        yield f"save {suspect.name} is {'bad' if suspect.is_proved else 'under suspicion'}"
    gang = status.elastic
    if gang is not None and gang.size < gang.wanted:
        yield f"it trains with {gang.size} of {gang.wanted} ranks: {gang.reason}: {gang.message}"
    spares = status.spares
    if spares is not None and spares.ready < spares.wanted:
        why = f": {spares.message}" if spares.message else ""
        yield f"{spares.ready} of {spares.wanted} spares are ready{why}"


def _end(job: Seen, *, now: float) -> Iterable[str]:
    status = job.status
    yield (
        f"ended {ago(status.completion_time, now=now)} after {plural(status.starts, 'start')}, "
        f"{plural(status.restarts, 'restart')}"
    )


def _change(job: Seen) -> Iterable[str]:
    if job.has_news:
        yield "the newest change of spec has not been taken up by the operator yet"
    if job.status.pending_template is not None:
        yield "a changed template waits for the next durable save"
    asked = job.status.last_request
    if asked is not None and asked.result.startswith("refused"):
        yield f"request {asked.id} ({asked.action}) was {asked.result}"


def _next(job: Seen, reason: str) -> tuple[str, ...]:
    status = job.status
    known = next((words for key, words in _COMMANDS.items() if key == reason), ())
    found = [words.format(job=job.full_name) for words in known]
    degraded = job.condition(ConditionType.DEGRADED)
    about = reason
    if status.is_true(ConditionType.RUNNING) or status.is_true(ConditionType.COMPLETE):
        if degraded is None or degraded.status != "True":
            return () if status.is_terminal else (f"rtj watch {job.full_name}",)
        about = degraded.reason
    text = remedy(about, name=job.name)
    if text is not None:
        found.append(text)
    if not status.is_terminal:
        found.append(f"rtj watch {job.full_name}: what becomes of it")
    return tuple(found)
