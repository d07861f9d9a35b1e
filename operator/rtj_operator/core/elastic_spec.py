"""`spec.elastic` as decisions need it, and what of it cannot work. Pure.

Must never let a size through that changes what a step takes of the data.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.rules.elastic import Batch, Elastic, allowed_sizes, why_uneven
from rtj_api.v1alpha1 import GangScheduler, GrowWhen, JobSpec

from rtj_operator.core.template import refuse


def spare_slots(spec: JobSpec) -> int:
    """The most pods without a rank that there may be at once."""
    short = spec.replicas - spec.elastic.min_replicas if spec.elastic is not None else 0
    return spec.recovery.spares + max(0, short)


def elastic_of(spec: JobSpec, *, procs: int) -> Elastic | None:
    """`procs`: trainer processes of a pod. None where the job is not elastic. Raises
    SpecRefused."""
    wish = spec.elastic
    if wish is None:
        return None
    if spec.scheduling.gang is not GangScheduler.NONE:
        refuse(
            Reason.INVALID_SPEC,
            f"spec.elastic does not go with spec.scheduling.gang {spec.scheduling.gang}: a group "
            "is let go as a whole or not at all. Set one of the two.",
        )
    batch = None
    if wish.global_batch is not None and wish.micro_batch is not None:
        batch = Batch(whole=wish.global_batch, micro=wish.micro_batch, procs=procs)
        for size in (spec.replicas, *wish.allowed_replicas):
            if (why := why_uneven(batch, size=size)) is not None:
                refuse(
                    Reason.INVALID_SPEC,
                    f"spec.elastic: {why}. Change globalBatch or microBatch, or the size.",
                )
    sizes = allowed_sizes(
        full=spec.replicas,
        least=wish.min_replicas,
        listed=wish.allowed_replicas,
        batch=batch,
    )
    if len(sizes) < 2:
        sums = "" if batch is None else f" of which globalBatch {batch.whole} is a multiple"
        refuse(
            Reason.INVALID_SPEC,
            f"spec.elastic allows no size from minReplicas {wish.min_replicas} to below replicas "
            f"{spec.replicas}{sums}. Lower minReplicas, or change globalBatch or microBatch.",
        )
    return Elastic(
        full=spec.replicas,
        sizes=sizes,
        scale_down_after=wish.scale_down_after_seconds,
        grows=wish.grow_when is GrowWhen.AT_CHECKPOINT,
        batch=batch,
        learning_rate=wish.learning_rate,
    )
