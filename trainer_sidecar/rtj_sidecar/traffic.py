"""What a sidecar has moved. A plain number's page, so that it costs nothing to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sent:
    """The newest save of which this rank has sent its part whole: bytes that went, and how long."""

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes moved since this process began."""

    uploaded: int = 0
    from_store: int = 0
    from_peers: int = 0
