"""What newer reports add to a status, decisions left as they are: progress, durable saves, the
stages that the current attempt has passed, and the refill of budgets that durable work earns.

Every pass begins with it, so every rule sees the newest facts. Pure.
"""

from __future__ import annotations

import math

from rtj_api.status import CheckpointStatus, CurrentAttempt, Progress, Status
from rtj_api.wire import CheckpointView, LossState, Phase, Report, Verdict

from rtj_operator.core import budget, queueing, resumption, sizes, steering, writers
from rtj_operator.core.directives import HAS_RESTORED
from rtj_operator.core.gang import Gang

_LOUDEST = (LossState.UNKNOWN, LossState.WITHIN, LossState.OUTSIDE)


def own_reports(gang: Gang) -> list[Report]:
    """Reports of the ranks' own pods, by rank."""
    return [m.report for m in gang.members if m.report is not None]


def _is_newly_durable(old: CheckpointStatus, view: CheckpointView) -> bool:
    """Whether the holder names a later durable save than status does. Steps decide where both
    are known: a save that was finished first may become durable last."""
    if view.last_durable_name is None or view.last_durable_name == old.last_durable_name:
        return False
    if view.last_durable_step is not None and old.last_durable_step is not None:
        return view.last_durable_step > old.last_durable_step
    return (view.last_durable_at or 0.0) > (old.last_durable_time or 0.0)


def new_verdicts(gang: Gang, *, told: float | None) -> list[Verdict]:
    """Verdicts on saves later than `told`, the oldest first."""
    found = [v for r in own_reports(gang) for v in r.verdicts if v.at > (told or 0.0)]
    return sorted(found, key=lambda v: (v.at, v.name, v.reason))


def _next_checkpoint(gang: Gang) -> CheckpointStatus:
    """Checkpoint facts; the durable ones only ever move forward here."""
    old = gang.status.checkpoint
    holder = gang.rank_zero.report if gang.members else None
    reports = own_reports(gang)
    update: dict[str, object] = {}
    saved = max(
        (r.checkpoint for r in reports if r.checkpoint.last_saved_at is not None),
        key=lambda c: c.last_saved_at or 0.0,
        default=None,
    )
    if saved is not None and (saved.last_saved_at or 0) > (old.last_saved_time or 0):
        update["last_saved_step"] = saved.last_saved_step
        update["last_saved_time"] = saved.last_saved_at
    if gang.through_store:
        # Any rank's last words may tell what is durable; the newest are as good as the holder's.
        words = [r for r in reports if r.checkpoint.last_durable_name is not None]
        teller = max(words, key=lambda r: r.checkpoint.last_durable_at or 0.0, default=None)
        if teller is not None and _is_newly_durable(old, teller.checkpoint):
            update["last_durable_step"] = teller.checkpoint.last_durable_step
            update["last_durable_time"] = teller.checkpoint.last_durable_at
            update["last_durable_name"] = teller.checkpoint.last_durable_name
    elif holder is not None and not steering.is_on_its_way(gang):
        view = holder.checkpoint
        condemned = {c.name for c in holder.candidates if c.invalid is not None}
        if view.last_durable_name not in condemned and _is_newly_durable(old, view):
            update["last_durable_step"] = view.last_durable_step
            update["last_durable_time"] = view.last_durable_at
            update["last_durable_name"] = view.last_durable_name
        update["valid"] = view.valid
        update["invalid"] = view.invalid
    verdicts = new_verdicts(gang, told=old.last_verdict_time)
    if verdicts:
        # Rounded up to what JSON keeps, or the newest would be told again and again.
        update["last_verdict_time"] = math.ceil(verdicts[-1].at * 1e6) / 1e6 + 1e-6
    update["fixed_size"] = sizes.fixed_size(gang)
    if reports:
        update["pending_saves"] = max(r.checkpoint.pending_saves for r in reports)
    losses = [
        r.loss_check
        for r in reports
        if r.loss_check is not None and r.trainer.attempt == gang.attempt
    ]
    if losses and gang.status.is_started:
        worst = max(losses, key=lambda c: _LOUDEST.index(c.state))
        update["resume_loss"] = {**worst.model_dump(exclude={"samples"}), "state": worst.state}
    replays = resumption.replays(gang)
    if replays and gang.status.is_started:
        update["resume_replay"] = replays[-1].model_dump(mode="json", exclude={"compared"})
    return CheckpointStatus.model_validate({**old.model_dump(), **update})


def _next_progress(gang: Gang) -> Progress:
    views = [
        r.progress
        for r in own_reports(gang)
        if r.trainer.attempt == gang.attempt and r.progress.step is not None
    ]
    if not gang.status.is_started or not views:
        return gang.status.progress
    best = max(views, key=lambda p: (p.step or 0, p.updated_at or 0))
    return Progress(step=best.step, epoch=best.epoch, loss=best.loss, at=best.updated_at)


def _scheduled_at(gang: Gang, *, since: float | None) -> float:
    """When the last pod of this attempt found its node, by its own status: the same in each pass
    until it is written. Kubernetes cuts it to whole seconds."""
    pods = [m.pod for m in gang.members if m.pod is not None and m.made_in == gang.attempt]
    times = [pod.scheduled_since for pod in pods if pod.scheduled_since is not None]
    if len(times) < len(pods) or not times:
        return gang.now
    return min(gang.now, max(*times, since or 0.0))


def _went_at(gang: Gang) -> float:
    """When the go was first written to a pod: the same in each pass until status shows it."""
    pods = [m.pod for m in gang.members if m.pod is not None]
    goes = [
        pod.told_at
        for pod in pods
        if pod.told_at is not None
        and pod.directive is not None
        and (pod.directive.attempt, pod.directive.phase) == (gang.attempt, Phase.GO)
    ]
    return min([gang.now, *goes])


def _next_current(gang: Gang) -> CurrentAttempt | None:
    """The stages that the current attempt has passed, each set once."""
    current = gang.status.current
    if current is None or not gang.members or gang.status.hold is not None:
        return current
    n = gang.attempt
    reports = [m.report for m in gang.members]
    update: dict[str, float | int] = {}
    if (
        current.admitted_at is None
        and current.group_since is not None
        and queueing.is_admitted(gang)
    ):
        update["admitted_at"] = gang.now
    if current.scheduled_at is None and all(m.pod and m.pod.node for m in gang.members):
        update["scheduled_at"] = _scheduled_at(gang, since=current.recorded_at)
    resume = gang.status.resume
    if gang.status.is_started and resume is not None:
        if current.restored_at is None and (
            resume.fast or all(m.has_reached(n, *HAS_RESTORED) for m in gang.members)
        ):
            update["restored_at"] = resume.at if resume.fast else _went_at(gang)
        started = [
            r.trainer.started_at
            for r in reports
            if r is not None and r.trainer.attempt == n and r.trainer.started_at is not None
        ]
        if current.training_at is None and len(started) == len(gang.members):
            update["training_at"] = max(started)
        steps = [
            r.progress.first_step_at
            for r in reports
            if r is not None and r.trainer.attempt == n and r.progress.first_step_at is not None
        ]
        if current.first_step_at is None and steps:
            update["first_step_at"] = min(steps)
        stalls = [
            (r.checkpoint.stall_seconds, r.checkpoint.stalls)
            for r in reports
            if r is not None and r.trainer.attempt == n and r.checkpoint.stalls
        ]
        if stalls and max(stalls)[0] > (current.stall_seconds or 0.0):
            update["stall_seconds"], update["stalls"] = max(stalls)
    if not update:
        return current
    return CurrentAttempt.model_validate({**current.model_dump(), **update})


def absorbed(gang: Gang) -> Status:
    """The status with everything that the reports add to it, decisions left as they are.

    A newly durable step refills the budgets; the first one ever seen only sets the mark.
    """
    status = gang.status
    if status.is_terminal:
        return status
    checkpoint = _next_checkpoint(gang)
    budgets = status.budgets
    if checkpoint.last_durable_name != status.checkpoint.last_durable_name:
        step, mark = checkpoint.last_durable_step, budgets.progress_step
        if step is None or mark is None or step > mark:
            budgets = budget.next_budgets_at_progress(budgets, step=step)
    reports = own_reports(gang)
    ever = (
        status.ever_durable
        or checkpoint.last_durable_name is not None
        or (
            not steering.is_on_its_way(gang)
            and any(c.durable for r in reports for c in r.candidates)
        )
    )
    current = _next_current(gang)
    return status.model_copy(
        update={
            "checkpoint": checkpoint,
            "elastic": sizes.with_proof(gang, checkpoint),
            "progress": _next_progress(gang),
            "current": current,
            "beginnings": steering.next_beginnings(gang, current),
            "budgets": budgets,
            "older_writers": writers.with_proofs(gang),
            "ever_durable": ever,
        }
    )
