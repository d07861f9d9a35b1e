"""boto3's clients as this driver needs them: one for small calls, one for large bodies.

Two settings carry the speed and the safety: payloads are not signed (`payload_signing_enabled:
False`; SHA-256 signing costs 3-6x) but carry a CRC64NVME that the server verifies. Must never let
botocore try again by itself: how long a call may last is decided in one place, `s3`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from rtj_sidecar.stores import s3_listing
from rtj_sidecar.stores.s3_wire import Wire
from rtj_sidecar.stores.secrets import keep_requests_out_of_logs

_CONNECT_TIMEOUT_S = 3
_SMALL_READ_TIMEOUT_S = 10
_TRANSFER_READ_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Clients:
    """`large` sends its bodies over `wire`."""

    small: Any
    large: Any
    wire: Wire


def clients_of(
    session: boto3.session.Session,
    *,
    endpoint: str | None,
    region: str | None,
    ca_file: str | None,
    connections: int,
) -> Clients:
    """Talks to nobody yet. Raises botocore's errors for settings that cannot be."""
    keep_requests_out_of_logs("botocore.endpoint", "botocore.auth", "botocore.httpsession")
    # As botocore itself decides it, which then tells nobody.
    verify = (
        ca_file
        or session._session.get_config_variable("ca_bundle")
        or os.environ.get("REQUESTS_CA_BUNDLE")
    )
    common: dict[str, Any] = {
        "service_name": "s3",
        "endpoint_url": endpoint,
        # Any region will do for a server that is not AWS, but botocore wants one.
        "region_name": region or session.region_name or ("us-east-1" if endpoint else None),
        "verify": verify,
    }
    settings: dict[str, Any] = {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "max_pool_connections": connections,
        "tcp_keepalive": True,
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "s3": {
            "payload_signing_enabled": False,
            # A bucket as a host name needs DNS that private servers rarely have.
            "addressing_style": "path" if endpoint else "auto",
        },
    }
    small = session.client(**common, config=Config(**settings, read_timeout=_SMALL_READ_TIMEOUT_S))
    s3_listing.attach(small)
    large = session.client(
        **common, config=Config(**settings, read_timeout=_TRANSFER_READ_TIMEOUT_S)
    )
    wire = Wire(
        connect_timeout_s=_CONNECT_TIMEOUT_S,
        timeout_s=_TRANSFER_READ_TIMEOUT_S,
        verify=verify or True,
    )
    wire.attach(large)
    return Clients(small, large, wire)
