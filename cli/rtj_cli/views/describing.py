"""`rtj describe`: everything that status holds of a job, in sections a person reads. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rtj_api import contract
from rtj_api.status import ConditionType

from rtj_cli.jobs import Raw, Seen
from rtj_cli.views import timeline
from rtj_cli.views.listing import goodput
from rtj_cli.views.words import ago, clock, number, percent, plural, remedy, spaced, span

_QUIET = ("NothingDegraded", "NotComplete", "NotFailed", "NotSuspended")


def lines(job: Seen, *, pods: Sequence[Raw] = (), now: float) -> list[str]:
    found = [
        *_section("Job", _head(job, now=now)),
        *_section("Saves", _saves(job, now=now)),
        *_section("Budgets", _budgets(job)),
        *_section("Time", _ledger(job)),
        *_section("Interval", _interval(job)),
        *_section("Conditions", _conditions(job)),
        *_section("Pods", _pods(pods)),
        *_section("Attempts", iter(timeline.lines(job, now=now))),
    ]
    return found[:-1] if found and not found[-1] else found


def _section(title: str, told: Iterator[str]) -> list[str]:
    body = [f"  {line}" if line else "" for line in told]
    return [title, *body, ""] if body else []


def _head(job: Seen, *, now: float) -> Iterator[str]:
    status = job.status
    yield f"name       {job.full_name}"
    yield f"phase      {status.phase.value} ({job.reason})" if job.is_looked_at else "phase      -"
    yield f"made       {ago(job.created_at, now=now)}"
    yield f"ranks      {job.replicas}" + (" (suspended by spec)" if job.is_suspended else "")
    yield f"run        {job.run_id} in {job.store_url or 'its checkpoint volume'}"
    seen = status.progress
    if seen.step is not None:
        parts = [f"step {seen.step}"]
        parts += [f"epoch {number(seen.epoch)}"] if seen.epoch is not None else []
        parts += [f"loss {number(seen.loss)}"] if seen.loss is not None else []
        yield f"progress   {', '.join(parts)}, {ago(seen.at, now=now)}"
    yield (
        f"attempts   {status.attempt}, {status.starts} started, "
        f"{plural(status.restarts, 'restart')}, {plural(status.failures, 'failure')} of its own"
    )
    if status.hold is not None:
        yield f"held       since {clock(status.hold.since)}: {status.hold.reason}: " + (
            status.hold.message
        )
    if status.elastic is not None:
        gang = status.elastic
        yield f"elastic    {gang.size} of {gang.wanted} ranks since {clock(gang.since)}: " + (
            f"{gang.reason}: {gang.message}".rstrip(": ")
        )
        if gang.growing is not None:
            yield f"growing    to {gang.growing.size} ranks at the next durable save"
    if status.spares is not None:
        why = f": {status.spares.message}" if status.spares.message else ""
        yield f"spares     {status.spares.ready} of {status.spares.wanted} ready{why}"
    for each in status.stand_ins:
        yield f"stand-in   rank {each.rank} is played by spare {each.spare}"
    if status.last_request is not None:
        asked = status.last_request
        yield f"request    {asked.id} {asked.action}, {ago(asked.at, now=now)}: {asked.result}"
    if status.stop is not None:
        stop = status.stop
        step = "" if stop.step is None else f" at step {stop.step}"
        yield f"stop       {stop.verdict}{step} for {stop.cause}: {stop.message}"


def _saves(job: Seen, *, now: float) -> Iterator[str]:
    saves = job.status.checkpoint
    if saves.last_durable_name is not None:
        yield (
            f"durable    {saves.last_durable_name}, step {number(saves.last_durable_step)}, "
            f"{ago(saves.last_durable_time, now=now)}"
        )
    if saves.last_saved_step is not None:
        yield f"newest     step {saves.last_saved_step}, {ago(saves.last_saved_time, now=now)}"
    yield f"of the run {saves.valid} valid, {saves.invalid} invalid, {saves.pending_saves} pending"
    if saves.resume_quality is not None:
        yield f"resume     {saves.resume_quality}: {saves.resume_message or ''}"
    if saves.resume_loss is not None:
        loss = saves.resume_loss
        yield f"loss       {loss.state}: {number(loss.seen)} against {number(loss.expected)}"
    if saves.resume_replay is not None:
        yield f"replay     {saves.resume_replay.state}: {saves.resume_replay.message}"
    for each in job.status.suspicions:
        yield f"suspect    {each.name}: {each.alike}{each.where}"
    found = job.status.bisection
    if found is not None:
        yield f"bisection  {found.id}: {found.saves[found.trial]} is on trial"


def _budgets(job: Seen) -> Iterator[str]:
    spent = job.status.budgets
    yield (
        f"{spent.restarts_since_progress} of {spent.limit} restarts since durable progress, "
        f"{spent.infrastructure_since_progress} free ones of the infrastructure"
    )
    for each in spent.incidents:
        node = f" on {each.node}" if each.node else ""
        yield f"fault of attempt {each.attempt}{node}: {each.alike} (charged: {each.charge})"


def _ledger(job: Seen) -> Iterator[str]:
    ledger = job.status.ledger
    if ledger is None:
        return
    whole = ledger.until - ledger.since
    share = goodput(job)
    if share is not None:
        yield f"goodput    {percent(share, 1.0)} of {span(whole)}"
    for name, seconds in ledger.seconds.dump_seconds():
        if seconds:
            yield f"{spaced(name):<17} {span(seconds):>8}  {percent(seconds, whole):>7}"
    if ledger.interruptions:
        mean = ledger.recovery_seconds / ledger.recoveries if ledger.recoveries else None
        yield plural(ledger.interruptions, "interruption") + (
            f", {span(mean)} from fault to step on average" if mean is not None else ""
        )


def _interval(job: Seen) -> Iterator[str]:
    told = job.status.interval
    if told is None:
        return
    seen = told.actual_seconds
    made = "at an unknown interval" if seen is None else f"every {span(seen)}"
    yield (
        f"saves {made}, recommended {span(told.recommended_seconds)} ({told.rule}; "
        f"mean time to an interruption {span(told.mtti_seconds)})"
    )


def _conditions(job: Seen) -> Iterator[str]:
    for each in job.status.conditions:
        if each.reason in _QUIET:
            continue
        yield f"{each.type.value:<16} {each.status:<8} {each.reason}: {each.message}".rstrip(": ")
        is_bad = each.status == ("True" if each.type in _BAD_WHEN_TRUE else "False")
        text = remedy(each.reason, name=job.name) if is_bad else None
        if text is not None and each.type != ConditionType.RUNNING:
            yield f"{'':<26}{text}"


_BAD_WHEN_TRUE = (ConditionType.DEGRADED, ConditionType.FAILED, ConditionType.SUSPENDED)


def pod_lines(pods: Sequence[Raw]) -> list[str]:
    """One line a pod: rank, phase, node."""
    return list(_pods(pods))


def _pods(pods: Sequence[Raw]) -> Iterator[str]:
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        rank = labels.get(contract.LABEL_RANK)
        role = "spare" if labels.get(contract.LABEL_ROLE) == contract.ROLE_SPARE else f"rank {rank}"
        node = (pod.get("spec") or {}).get("nodeName") or "no node"
        phase = (pod.get("status") or {}).get("phase") or "?"
        going = ", going" if "deletionTimestamp" in pod["metadata"] else ""
        yield f"{role:<9} {pod['metadata']['name']:<32} {phase}{going} on {node}"
