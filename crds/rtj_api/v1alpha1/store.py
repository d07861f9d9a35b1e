"""`checkpoint.store` and `checkpoint.retention`: where saves are kept, and which of them.

Must never do I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from rtj_api import stores
from rtj_api import validations as v
from rtj_api.api_base import Api, ShortText
from rtj_api.v1alpha1.base import Quantity, SecretName


class BestMode(StrEnum):
    MIN = "min"
    MAX = "max"


class Thin(StrEnum):
    GEOMETRIC = "geometric"
    NONE = "none"


class CaBundle(Api):
    """Certificates by which a server of one's own is known, PEM, in place of the public ones."""

    config_map: SecretName | None = Field(
        None, description="Name of a ConfigMap in the job's namespace."
    )
    secret: SecretName | None = Field(None, description="Name of a Secret in the job's namespace.")
    key: Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = Field(
        "ca.crt", description="The key that holds the certificates."
    )


class Store(Api):
    """Where finished saves are kept: the truth that outlives every pod and node."""

    url: ShortText = Field(
        description=(
            f"{stores.URL_FORMS}. Saves go below <url>/<runID>. Cannot be changed. See "
            "docs/stores.md."
        ),
        json_schema_extra=v.rules(*v.STORE_URL),
    )
    endpoint: ShortText | None = Field(
        None,
        description=(
            "URL of the store's server: of one that speaks S3, http://s3.storage:8333 (default: "
            "AWS for the region); of another gs:// server; of an Azure account, "
            "https://<account>.blob.core.windows.net; of WebHDFS, http://namenode:9870, several "
            "with ';' between them."
        ),
        json_schema_extra=v.rules(*v.STORE_ENDPOINT),
    )
    region: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        None, description="S3 region. Default: AWS_REGION of the sidecar, else us-east-1."
    )
    ca_bundle: CaBundle | None = Field(
        None,
        description=(
            "Who signed the certificate of an https endpoint, where that is no public authority."
        ),
        json_schema_extra=v.rules(*v.CA_BUNDLE),
    )
    credentials_secret: SecretName | None = Field(
        None,
        description=(
            "Name of a Secret in the job's namespace with, for s3://, AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN if needed); for the others see "
            "docs/stores.md. Only the sidecar gets it. Default: workload identity."
        ),
    )
    max_upload_bytes_per_second: Quantity | None = Field(
        None,
        description=(
            "Bytes a second that each pod's sidecar may send, such as 200M, at least 64Ki: for a "
            "network that the trainer needs for itself. Restores are not slowed down, for the "
            "whole gang waits for them. Default: as fast as it goes."
        ),
        json_schema_extra=v.rules(*v.UPLOAD_RATE),
    )


class KeepBest(Api):
    """Saves that are kept because they are the best by a metric."""

    metric: Annotated[str, StringConstraints(min_length=1, max_length=64)] = Field(
        "loss",
        description=(
            "loss, or a metric that stands in a save's name (val_acc in "
            "epoch=3-val_acc=0.91.ckpt), in lower case."
        ),
    )
    mode: BestMode = Field(BestMode.MIN, description="Whether the lowest or the highest is best.")
    count: int = Field(1, ge=1, le=1000, description="So many of them.")


class Retention(Api):
    """Which saves the store keeps. The one in use, the last valid one, what is pinned and what an
    attempt began from are never removed."""

    keep_last: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description=(
            "Keep this many of the newest verified saves. Default: keep all; without a store, 5."
        ),
    )
    keep_every: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000_000,
        description=(
            "Of the older ones, also keep the first at or after each multiple of so many steps."
        ),
    )
    keep_best: KeepBest | None = Field(
        None, description="Of the older ones, also keep the best by a metric."
    )
    thin: Thin | None = Field(
        None,
        description=(
            "What becomes of the other older ones. geometric: about two are kept for each doubling "
            "of their age, so that good points survive for a roll-back (17 beside the newest 5 of "
            "10,000). none: they go. Default: geometric; without a store, none."
        ),
    )
    archive_after_seconds: float | None = Field(
        None,
        ge=3600,
        le=315_360_000,
        description=(
            "Saves that are kept although they are not among the newest move to archiveClass so "
            "long after they were made. An archived save is not resumed from until the store has "
            "restored it. Default: never."
        ),
    )
    archive_class: Annotated[str, StringConstraints(pattern="^[A-Z0-9_]+$", max_length=64)] = Field(
        "GLACIER",
        description="A storage class of the store, such as STANDARD_IA, GLACIER_IR, DEEP_ARCHIVE.",
    )
