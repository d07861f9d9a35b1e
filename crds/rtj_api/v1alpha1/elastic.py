"""`elastic`: a gang that trains on fewer pods for a while. Must never do I/O.

Fields only; the arithmetic is `rtj_api.rules.elastic`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from rtj_api.api_base import Api
from rtj_api.rules.elastic import LearningRate
from rtj_api.v1alpha1.base import MAX_REPLICAS

Size = Annotated[int, Field(ge=1, le=MAX_REPLICAS)]


class GrowWhen(StrEnum):
    """When a gang that was made smaller grows again."""

    AT_CHECKPOINT = "AtCheckpoint"
    NEVER = "Never"


class Elastic(Api):
    """A gang that goes on with fewer pods where not all find a place, and grows again when they do.

    The training script must be able to load its save with another number of processes. See
    docs/elastic.md.
    """

    min_replicas: int = Field(ge=1, le=MAX_REPLICAS, description="No smaller gang ever trains.")
    allowed_replicas: tuple[Size, ...] = Field(
        (),
        max_length=64,
        description=(
            "The sizes that are allowed besides replicas. Absent: all from minReplicas on. Of "
            "these, sizes that cannot keep globalBatch are left out, or refused where they are "
            "listed here."
        ),
    )
    scale_down_after_seconds: float = Field(
        120,
        ge=5,
        le=604_800,
        description=(
            "How long a rank may find no place, neither a node nor quota, while others have one, "
            "before the gang goes on without it."
        ),
    )
    grow_when: GrowWhen = Field(
        GrowWhen.AT_CHECKPOINT,
        description=(
            "AtCheckpoint: as many pods as are missing wait beside the gang for a place; once one "
            "has it and is ready, the gang grows at a step that all ranks save at (recovery.stop) "
            "or else at the next durable save. Never: it stays small until it is suspended and "
            "resumed."
        ),
    )
    global_batch: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description=(
            "Samples of one step, of the whole gang. It is kept at every size by gradient "
            "accumulation, which the trainer hears as RTJ_GRADIENT_ACCUMULATION; so a step is the "
            "same position in the data at any size. Needs microBatch."
        ),
    )
    micro_batch: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="Samples that one process takes at once. Needs globalBatch.",
    )
    learning_rate: LearningRate = Field(
        LearningRate.NONE,
        description=(
            "Where globalBatch is absent the batch changes with the size: the factor that the "
            "trainer hears as RTJ_LEARNING_RATE_SCALE. None: 1. Linear: size/replicas. Sqrt: its "
            "square root."
        ),
    )
