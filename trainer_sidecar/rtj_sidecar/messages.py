"""What sidecars of one gang say to each other over HTTP.

Hints that make things fast: the record in the store is the truth. Readers ignore unknown fields.
"""

from __future__ import annotations

from pydantic import Field
from rtj_api.wire import Wire

from rtj_sidecar.runs.records import SaveFacts, ShipRecord


class SeenSave(Wire):
    """A save that a rank saw finish and has pinned."""

    fingerprint: str  # of its generation on that rank's disk
    ordinal: (
        int  # counts the saves of that rank in this attempt, so a path used twice is told apart
    )
    facts: SaveFacts
    paths: list[str]
    bytes: int
    seen_at: float


class Seen(Wire):
    """POST /seen: all saves of this attempt that are pinned here and that no ship holds yet."""

    job_uid: str = Field(alias="jobUID")
    rank: int
    attempt: int
    saves: list[SeenSave] = Field(default_factory=list)


class Ships(Wire):
    """GET /ships: what the holder has named in its fence, and what became of it."""

    fence: int | None = None
    version: int  # rises with each change; the `since` of the long poll
    ships: list[ShipRecord] = Field(default_factory=list)  # open ones
    durable: list[str] = Field(default_factory=list)  # names with a manifest, newest last, bounded
    dropped: list[str] = Field(default_factory=list)


class PeerFile(Wire):
    path: str
    size: int


class PeerSave(Wire):
    """GET /saves/<name>: the files of a save that are pinned here."""

    name: str
    files: list[PeerFile]
