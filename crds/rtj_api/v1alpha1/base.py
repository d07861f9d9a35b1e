"""Texts and quantities that several parts of the spec share. Must never do I/O."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

Quantity = int | str
"""A Kubernetes quantity: `2`, `500m`, `1Gi`."""

PathText = Annotated[str, StringConstraints(min_length=1, max_length=512)]

GlobText = Annotated[str, StringConstraints(min_length=1, max_length=256)]

SecretName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)
]

MAX_REPLICAS = 10_000
