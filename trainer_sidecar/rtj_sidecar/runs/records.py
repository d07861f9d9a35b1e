"""The records of one run in a store: their exact JSON, as frozen models.

A record is a promise to every later version: readers ignore unknown fields, writers only add. All
but fences and `manifest.json` are written once and never changed. Times are Unix seconds (float) by
the writer's clock and are for people: no decision ever compares two clocks. Sizes are bytes, hashes
lower-case hex, `crc64nvme` the base64 form that S3 uses.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field
from rtj_api.wire import FlightView, Resume, StallView, Wire

FORMAT_VERSION = 1


class StoreFacts(Wire):
    """What the store was seen to do when the run began (probed once, by a real race)."""

    conditional_create: bool
    conditional_replace: bool
    checksum: str  # "crc64nvme": verified on upload and told by HEAD; "none"
    probed_at: float

    @property
    def honours_conditions(self) -> bool:
        return self.conditional_create and self.conditional_replace


class RunRecord(Wire):
    """`run.json`: who began this run, and what its store can do."""

    version: int = FORMAT_VERSION
    run_id: str = Field(alias="runID")
    cluster_uid: str = Field(alias="clusterUID")
    job_uid: str = Field(alias="jobUID")
    made_at: float
    store: StoreFacts


class Parent(Wire):
    """What an attempt started from: a save of this or another run, or nothing (by right).

    `step`, `epoch` are the position of that save, for the guard against a trainer that ignored it.
    """

    scratch: bool = False
    run: str | None = None  # None: this run
    name: str | None = None
    step: int | None = None
    epoch: int | None = None
    asked: str | None = None  # by whose word; None: by the rule that takes the newest


class Outcome(StrEnum):
    COMPLETE = "complete"  # the job succeeded; its last save and outputs are durable
    FAILED = "failed"  # the job failed for good
    RELEASED = "released"  # the job ended otherwise: another job may go on


SAW_NO_FILES = "this rank saw no files of it"
"""`whyNone` of a rank that never had any, and of no other; also as older sidecars wrote it."""


class FenceRecord(Wire):
    """`fences/<8 digits>.json`: one attempt's right to publish. Created if absent; its owner adds
    `parent` before the go and `outcome` at the end, each by If-Match; `choice` and `go_at` only
    where the gang agrees through the store, see `ReadyRecord`."""

    version: int = FORMAT_VERSION
    fence: int
    cluster_uid: str = Field(alias="clusterUID")
    job_uid: str = Field(alias="jobUID")
    attempt: int
    world_size: int
    nonce: str  # makes the record unlike any other claim, so a lost reply can be recognised
    claimed_at: float
    namespace: str | None = None  # these four are for people: whose it is, and what it trains with
    job: str | None = None
    image: str | None = None
    command: list[str] = Field(default_factory=list)  # without what looks like a secret
    parent: Parent | None = None
    choice: Resume | None = None  # what every rank restores
    go_at: float | None = None  # every rank has restored: trainers may start
    outcome: Outcome | None = None
    outcome_at: float | None = None

    @property
    def owner(self) -> str:
        """`<clusterUID>/<jobUID>`."""
        return f"{self.cluster_uid}/{self.job_uid}"


class ReadyState(StrEnum):
    STOPPED = "stopped"  # no older trainer runs, the directory was looked at
    RESTORED = "restored"  # holds what the fence's `choice` names
    DRAINED = "drained"  # the trainer ended with exit 0 by itself and all of it is in the store


class ReadyRecord(Wire):
    """`ready/f<fence>/<rank>.json`: how far a rank is with the fence's attempt, where it cannot be
    said by HTTP. Written and overwritten by that rank's sidecar alone."""

    version: int = FORMAT_VERSION
    fence: int
    rank: int
    attempt: int
    pod_uid: str = Field(alias="podUID")
    state: ReadyState
    pinned: list[str] = Field(default_factory=list)  # saves whole and pinned there
    shares: list[str] = Field(default_factory=list)  # saves of which its own files are pinned there
    url: str | None = None  # where its sidecar serves files
    moved: int = 0  # bytes fetched for this attempt: shows that a long fetch goes on
    step: int | None = None  # of its trainer: shows that it goes on
    probing: int = 0  # how often it has said that its probe still runs
    stall: StallView | None = None  # its trainer gives no sign of life; written anew meanwhile
    flights: list[FlightView] = Field(default_factory=list)  # only together with a stall
    written_at: float


class SaveFacts(Wire):
    """What a sidecar knows of one save on its disk."""

    root_key: str  # the directory or file that names it, relative to the checkpoint directory
    layout: str
    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    full_state: bool | None = None
    status: str = "Settled"  # checkpoints.types.Status
    gates: list[dict[str, Any]] = Field(default_factory=list)
    facts: dict[str, Any] = Field(default_factory=dict)


class ShipRecord(Wire):
    """`ships/f<fence>/<n>.json`: the holder names its n-th save.

    `expected` are the ranks that saw files of it; `contested` the paths that more than one of them
    saw, which the lowest stores under their own name and the others under `.rank<r>/`.
    """

    version: int = FORMAT_VERSION
    fence: int
    n: int
    name: str
    root_key: str
    layout: str
    step: int | None = None
    epoch: int | None = None
    expected: list[int]
    contested: list[str] = Field(default_factory=list)
    world_size: int
    adopted: bool = False  # it lay there before any attempt: who made it, nobody knows
    made_in: int | None = None  # the attempt whose trainers made it, 0 where it is adopted
    asked: list[int] = Field(default_factory=list)
    """Ranks that had said nothing when it got its name, and may have a share of it."""
    shape: dict[int, str] = Field(default_factory=dict)
    """By rank, the kinds of files that it told of, as a hash; see `unions.Shape`."""
    named_at: float
    reserved: str | None = None  # no ship: an import, of that sidecar or command, has the number

    def believes_none(self, part: PartRecord, *, is_of_fence: bool = False) -> bool:
        """Whether a rank that answers "none" has none. Of one that was asked only the pod that
        was there then can say so: a share that died with it is known to no other.

        The sidecar of the version before tells no `made_in`. Under the fence of the attempt that
        made the save (`is_of_fence`) no later pod can have said it."""
        if part.rank not in self.asked:
            return True
        if part.made_in is None or self.made_in is None:
            return is_of_fence and part.why_none == SAW_NO_FILES
        return part.made_in <= self.made_in


class FileRecord(Wire):
    """One file of a save. `key` is relative to the run; `ranks` None: every rank gets it."""

    path: str
    key: str
    size: int
    sha256: str
    crc64nvme: str
    mode: int = 0o644
    alias: bool = False
    etag: str | None = None  # as the store told it right after the upload
    sample: str | None = None  # see runs.reuse: whether to look closer at a later file
    ranks: list[int] | None = None
    copies: int = 0  # made by the store since the bytes were sent, see runs.reuse


class OutputsRecord(Wire):
    """`outputs/f<fence>/.rtj/<rank>.json`: what a rank left that succeeded, written last."""

    version: int = FORMAT_VERSION
    fence: int
    attempt: int
    rank: int
    files: list[FileRecord]
    written_at: float


class PartRecord(Wire):
    """`parts/f<fence>/<n>/<rank>.json`: one rank's share of a ship. No files: "none"."""

    version: int = FORMAT_VERSION
    fence: int
    n: int
    rank: int
    files: list[FileRecord] = Field(default_factory=list)
    save: SaveFacts | None = None
    why_none: str | None = None
    made_in: int | None = None  # the attempt that the pod was made in which says "none"
    written_at: float


class Imported(Wire):
    """Where a save was copied from: another run, here or at another URL, or (`run` empty) a place
    that this project did not write, with the state of the files that were read there."""

    url: str
    run: str
    name: str
    fingerprint: str | None = None


class ManifestRecord(Wire):
    """`manifests/f<fence>-n<n>.json`: the commit record. Immutable, created if absent, last."""

    version: int = FORMAT_VERSION
    run_id: str = Field(alias="runID")
    name: str
    fence: int
    n: int
    root_key: str
    layout: str
    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    full_state: bool | None = None
    status: str
    world_size: int
    attempt: int
    job_uid: str = Field(alias="jobUID")
    cluster_uid: str = Field(alias="clusterUID")
    parent: Parent | None = None  # of its fence
    committed_by_fence: int
    committed_at: float
    ranks: list[int]  # that wrote files of it
    made_in: int | None = None  # of its ship, as the next one
    shape: dict[int, str] = Field(default_factory=dict)
    files: list[FileRecord]
    gates: list[dict[str, Any]] = Field(default_factory=list)
    facts: dict[str, Any] = Field(default_factory=dict)
    imported: Imported | None = None  # reached only where an attempt starts from it

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.files)


class MarkKind(StrEnum):
    INVALID = "invalid"  # must never be resumed from
    SUSPECT = "suspect"  # trainers failed alike after resuming from it: an older one is tried
    POISON = "poison"  # … and that one got further, or a person says so: never resumed again
    GOOD = "good"  # a person takes back what was said against it; by CheckpointCleared, a suspicion
    PINNED = "pinned"  # someone restores from it, or a person wants it: its data stays
    UNPINNED = "unpinned"  # takes back every pin before it
    DROPPED = "dropped"  # a ship that will never be committed
    DELETED = "deleted"  # retention: data goes an hour later
    ARCHIVED = "archived"  # its objects are in, or on their way to, a slower class of the store
    OTHER = "other"  # of a later version

    @classmethod
    def _missing_(cls, value: object) -> MarkKind:
        """A verdict that this version does not know must not make the run unreadable."""
        return cls.OTHER


class MarkRecord(Wire):
    """`marks/<f…-n…>/<k>.json`: a verdict added later, with its evidence."""

    version: int = FORMAT_VERSION
    kind: MarkKind
    reason: str  # rtj_api.reasons.Reason
    message: str
    evidence: dict[str, Any] = Field(default_factory=dict)  # file, expected, got
    by_fence: int | None = None
    by_job_uid: str | None = Field(default=None, alias="byJobUID")
    marked_at: float
