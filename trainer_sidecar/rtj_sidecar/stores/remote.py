"""The drivers of stores that are reached by network, each with a library of its own.

A library is imported when its scheme is used: the image need not have them all, and a run on one
kind of store pays for no other. Must never guess a driver from anything but the scheme.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rtj_api.reasons import Reason
from rtj_api.stores import SCHEMES

from rtj_sidecar.stores.base import OnWait, Store, StoreProblem
from rtj_sidecar.stores.pace import Pace

_BUILDS = {scheme.name: scheme.build for scheme in SCHEMES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How to reach a store, see `open.open_store`."""

    endpoint: str | None
    region: str | None
    ca_file: str | None
    credentials_dir: Path | None
    patience_s: float
    transfer_patience_s: float
    pace: Pace | None
    on_wait: OnWait | None


def open_remote(scheme: str, place: str, *, prefix: str, reach: Reach) -> Store:
    """The store in `place` (bucket, container or name node). Raises StoreProblem."""
    try:
        return _made(scheme, place, prefix, reach)
    except ImportError as error:
        raise StoreProblem(
            Reason.STORE_SCHEME_UNKNOWN,
            f"no client for {scheme}:// is installed here ({error.name} is missing): use a "
            f"sidecar's image built with --build-arg STORES={_BUILDS[scheme]}, or, for the command "
            f"line, install the extra {scheme}; see docs/stores.md",
        ) from error


def _made(scheme: str, place: str, prefix: str, reach: Reach) -> Store:
    if scheme == "s3":
        from rtj_sidecar.stores.s3 import S3Store

        return S3Store(
            bucket=place,
            prefix=prefix,
            endpoint=reach.endpoint,
            region=reach.region,
            ca_file=reach.ca_file,
            credentials_dir=reach.credentials_dir,
            patience_s=reach.patience_s,
            transfer_patience_s=reach.transfer_patience_s,
            pace=reach.pace,
            on_wait=reach.on_wait,
        )
    from rtj_sidecar.stores.objects import ObjectStore
    from rtj_sidecar.stores.service import Service

    service: Service
    if scheme == "gs":
        from rtj_sidecar.stores.gcs import Gcs

        service = Gcs(
            place,
            endpoint=reach.endpoint,
            ca_file=reach.ca_file,
            credentials_dir=reach.credentials_dir,
            prefix=prefix,
        )
    elif scheme == "az":
        from rtj_sidecar.stores.azure import Azure

        service = Azure(
            place,
            endpoint=reach.endpoint,
            ca_file=reach.ca_file,
            credentials_dir=reach.credentials_dir,
        )
    else:
        from rtj_sidecar.stores.webhdfs import WebHdfs

        service = WebHdfs(
            place,
            endpoint=reach.endpoint,
            ca_file=reach.ca_file,
            credentials_dir=reach.credentials_dir,
        )
    return ObjectStore(
        service,
        prefix=prefix,
        patience_s=reach.patience_s,
        transfer_patience_s=reach.transfer_patience_s,
        pace=reach.pace,
        on_wait=reach.on_wait,
    )
