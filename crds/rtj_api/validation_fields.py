"""`checkpoint.validation`: how deeply a save is proved before an attempt may start from it.

The fields only; what they do is the sidecar's (`checkpoints/finite.py`, `checkpoints/required.py`,
`trials.py`), and a failed probe is judged by `rules.trials`. Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from rtj_api import validations as v
from rtj_api.api_base import Api

KeyText = Annotated[str, StringConstraints(min_length=1, max_length=256)]
WordText = Annotated[str, StringConstraints(max_length=4096)]


class ValidationLevel(StrEnum):
    CONTAINER = "container"
    FULL = "full"


class Probe(Api):
    """The user's own test of a restored save: a load test, a mini forward pass."""

    command: tuple[WordText, ...] = Field(
        min_length=1,
        max_length=32,
        description=(
            "Run once in the trainer's container of rank 0, after a save was restored and before "
            "any trainer starts, with the trainer's environment and RTJ_RESUME_CHECKPOINT, "
            "RTJ_RESUME_STEP and RTJ_CHECKPOINT_DIR, without the rendezvous variables. "
            "$(RTJ_RESUME_CHECKPOINT) is expanded. Exit code 0: the save is good. Else the next "
            "older save is tried, and if that one passes the newer is marked invalid; if two "
            "saves fail alike the job holds with ProbeFailed and nothing is marked."
        ),
        json_schema_extra=v.rules(*v.PROBE_COMMAND),
    )
    timeout_seconds: float = Field(
        600,
        ge=1,
        le=86_400,
        description="Longer is a failure, too. Whatever the probe leaves running is killed.",
    )


class Validation(Api):
    """How deeply a save is proved before an attempt may start from it."""

    level: ValidationLevel = Field(
        ValidationLevel.FULL,
        description=(
            "container: markers, checksums and completeness. full: also every parameter and "
            "optimizer tensor is read, and a NaN in one that was finite in the save before makes "
            "the save invalid. Infinities, buffers, schedulers and scores never do."
        ),
    )
    required_keys: tuple[KeyText, ...] = Field(
        (),
        max_length=64,
        description=(
            "Names that a full save must hold, or it is not resumed from: keys of the dictionary "
            "that was saved, or tensor names, with dots and globs: optimizer, model.head.weight, "
            "optim.state.*. Where a layout's names cannot be read safely, Degraded says so."
        ),
        json_schema_extra=v.rules(*v.REQUIRED_KEYS),
    )
    probe: Probe | None = Field(None, description="Default: none.")
