"""How many pods the gang has: what is recorded, else what the spec says; and what that implies.

A size changes only with the write that records an attempt, so which pods there are is a function
of status. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.rules.elastic import arithmetic, why_fixed
from rtj_api.status import CheckpointStatus, ElasticStatus, Status

from rtj_operator.core.gang import Gang
from rtj_operator.core.observed import JobSpec


def size_of(spec: JobSpec, status: Status) -> int:
    """Pods of an attempt that is recorded now and changes nothing about it. A size that the spec
    does not allow any more gives way to the next larger one."""
    if spec.elastic is None or status.elastic is None:
        return spec.replicas
    least = min(status.elastic.size, spec.replicas)
    return min(n for n in spec.elastic.sizes if n >= least)


def missing(gang: Gang) -> int:
    """Pods that the gang is short of and that may come back by themselves: none while its newest
    save could not be loaded by more of them."""
    wish, shown = gang.spec.elastic, gang.status.elastic
    if wish is None or shown is None or not wish.grows or gang.attempt == 0:
        return 0
    if gang.status.checkpoint.fixed_size is not None:
        return 0
    if shown.not_before is not None and not gang.alarm.has_passed(shown.not_before):
        return 0
    return max(0, gang.spec.replicas - len(gang.members))


def spares_wanted(gang: Gang) -> int:
    """Pods without a rank that are kept beside the gang."""
    return gang.spec.spares + missing(gang)


def next_elastic(gang: Gang, *, size: int, reason: Reason, message: str) -> ElasticStatus | None:
    """What is recorded with an attempt of that size; None where the job is not elastic."""
    wish, old, now = gang.spec.elastic, gang.status.elastic, gang.now
    if wish is None:
        return None
    sums = arithmetic(wish, size=size)
    new = ElasticStatus(
        size=size,
        wanted=gang.spec.replicas,
        since=now,
        reason=reason,
        message=message if size < gang.spec.replicas else "",
        gradient_accumulation=sums.accumulation,
        global_batch=sums.global_batch,
        learning_rate_scale=sums.learning_rate_scale,
    )
    if old is None:
        return new
    paced = {"failed_growths": old.failed_growths, "not_before": old.not_before}
    if size == old.size:
        said = {"since": old.since, "reason": old.reason, "message": old.message}
        return new.model_copy(update={**paced, **said, "unproved": old.unproved})
    if size > old.size:
        # Whoever comes back whole from a suspension has not yet been well with fewer pods.
        grown = gang.attempt + 1 if reason == Reason.SCALED_UP else None
        return new.model_copy(update={"failed_growths": old.failed_growths, "unproved": grown})
    if old.unproved is None:
        return new.model_copy(update=paced)  # a growth may be undone in two steps
    failed = old.failed_growths + 1
    policy = gang.policy
    pause = min(policy.grow_again_seconds * 2.0 ** min(failed - 1, 16), policy.grow_most_seconds)
    return new.model_copy(update={"failed_growths": failed, "not_before": now + pause})


def with_proof(gang: Gang, checkpoint: CheckpointStatus) -> ElasticStatus | None:
    """A growth is proved by a save that the larger gang has made and that is durable."""
    shown, resume = gang.status.elastic, gang.status.resume
    if shown is None or shown.unproved is None or resume is None or not gang.status.is_started:
        return shown
    if resume.attempt < shown.unproved or checkpoint.last_durable_name in (None, resume.name):
        return shown
    step, began = checkpoint.last_durable_step, resume.step
    if step is not None and began is not None and step <= began:
        return shown
    return shown.model_copy(update={"unproved": None, "failed_growths": 0, "not_before": None})


def fixed_size(gang: Gang) -> str | None:
    """Why the newest usable save fits one number of ranks only, by rank 0's list; what is known
    already where it lists none."""
    report = gang.rank_zero.report if gang.members else None
    if gang.spec.elastic is None:
        return None
    usable = [c for c in report.candidates if c.invalid is None] if report is not None else []
    if not usable:
        return gang.status.checkpoint.fixed_size
    return why_fixed(layout=usable[0].layout, writers=usable[0].needs)
