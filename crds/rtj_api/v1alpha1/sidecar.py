"""`sidecar`: the container that the operator adds to each pod. Must never do I/O."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from rtj_api import template_schema as schema
from rtj_api.api_base import Api, ShortText
from rtj_api.v1alpha1.base import Quantity


class ImagePullPolicy(StrEnum):
    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Resources(Api):
    """Compute resources of a container, as in a pod."""

    limits: dict[str, Quantity] = Field(default_factory=dict, max_length=32)
    requests: dict[str, Quantity] = Field(
        default_factory=dict, max_length=32, description="Default: equal to the limits."
    )


class Sidecar(Api):
    """The container that the operator adds to each pod to find, prove, ship and restore saves."""

    image: ShortText | None = Field(
        None, description="Default: the sidecar image of the operator's own release."
    )
    image_pull_policy: ImagePullPolicy | None = Field(
        None, description="Default: the operator's setting, else the kubelet's rule."
    )
    resources: Resources | None = Field(
        None,
        description=(
            "Default: the operator's setting. Requests equal limits unless stated, so that a "
            "Guaranteed pod stays one. With a memory-backed checkpoint directory the limit must "
            "cover that volume too."
        ),
    )
    env: tuple[dict[str, Any], ...] = Field(
        (),
        max_length=64,
        description="Further environment of the sidecar, in a container's form: HTTPS_PROXY, …",
        json_schema_extra=schema.PRESERVED_ITEMS_WITH_NAME,
    )
    env_from: tuple[dict[str, Any], ...] = Field(
        (),
        max_length=16,
        description="Secrets or ConfigMaps whose keys become environment of the sidecar only.",
        json_schema_extra=schema.PRESERVED_ITEMS,
    )
    drain_seconds: int = Field(
        300,
        ge=0,
        le=86_400,
        description=(
            "How long an ending pod may go on shipping finished saves after its trainer ended. "
            "Added to the template's terminationGracePeriodSeconds."
        ),
    )
