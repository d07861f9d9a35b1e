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
    attempt: int  # whose trainer made it: saves of two attempts are never one
    ordinal: int  # counts the saves of that rank's directory
    facts: SaveFacts
    paths: list[str]
    sizes: list[int] = Field(default_factory=list)  # of these; an older sidecar tells none
    bytes: int
    seen_at: float
    writing_seconds: float = 0.0  # at least so long before that its first file was begun


class Unfinished(Wire):
    """What a look found that still changes or is open for writing, and may become a save."""

    root_key: str
    layout: str
    step: int | None = None  # None: the name does not tell it
    since: float  # told alike for as long as it is found so without a break; by that rank's clock


class Seen(Wire):
    """POST /seen: what one rank has, in full; it replaces what that rank said before."""

    job_uid: str = Field(alias="jobUID")
    rank: int
    attempt: int
    saves: list[SeenSave] = Field(default_factory=list)  # pinned, and without a name yet
    pinned: list[str] = Field(default_factory=list)  # names of saves whose files it has
    parts: list[str] = Field(default_factory=list)  # names whose part is in the store
    final: bool = False  # the trainer of this attempt has ended and the directory was looked at
    went: int | None = None  # the attempt that its trainer was told to go in last
    url: str | None = None  # where its sidecar serves files
    open_paths: list[str] | None = None  # that its pod's trainer has open for writing, if known
    answered: int = 0  # the `Ships.question` that was heard before its last look at the directory
    is_writing: bool = False  # at that look something was not finished
    unfinished: list[Unfinished] | None = None  # what that was; an older sidecar does not tell
    told_at: float | None = None  # by that pod's clock, as it was sent; an older one does not tell


class OpenShip(Wire):
    """A named save that is not yet durable; `generations`: by rank, the fingerprint it saw.

    `made_in`: the attempt whose trainer made it; None where the holder has only read its record."""

    record: ShipRecord
    generations: dict[int, str] = Field(default_factory=dict)
    made_in: int | None = None


class Ships(Wire):
    """GET /ships: what the holder has named, and what became of it. Lists are bounded, newest
    last."""

    fence: int | None = None
    version: int  # rises with each change; the `since` of the long poll
    question: int = 0  # rises when a save waits for its name: what has each rank of it?
    ships: list[OpenShip] = Field(default_factory=list)
    durable: list[str] = Field(default_factory=list)
    left: list[str] = Field(default_factory=list)  # durable, on a line that was left
    dropped: list[str] = Field(default_factory=list)
    skipped: list[str] = Field(default_factory=list)  # fingerprints that will never be named
    ignored: list[str] = Field(default_factory=list)  # and those of trainers that began elsewhere
    holders: dict[str, list[str]] = Field(default_factory=dict)  # of the newest durable: URLs


class PeerFile(Wire):
    path: str
    size: int
    sha256: str
    mode: int = 0o644


class PeerSave(Wire):
    """GET /saves/<name>: what is pinned here of a save."""

    name: str
    facts: SaveFacts
    files: list[PeerFile]
