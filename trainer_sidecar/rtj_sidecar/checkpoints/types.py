"""The vocabulary of checkpoints on disk, shared by every part of the sidecar.

Values only: nothing here touches a disk. All paths are POSIX paths relative to the checkpoint
directory, never absolute and never with `..` in them. All times are nanoseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """What identifies one state of one file's bytes without reading them: the key of every cache.

    `ctime_ns` also moves when a name is added to or taken from an inode (our own hard-link pins,
    a rotation), so a stamp may change while the bytes did not; the reverse is what must not happen.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One regular file under the checkpoint directory, as one `lstat` saw it. `size` in bytes."""

    path: str
    size: int
    mode: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.device, self.inode, self.size, self.mtime_ns, self.ctime_ns)


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A symbolic link under the checkpoint directory: never followed, a hint at most."""

    path: str
    target: str
    resolved: str | None
    """The target as a path relative to the checkpoint directory; None where it leaves it."""


@dataclass(frozen=True, slots=True)
class OddEntry:
    """Something that is no file, directory or link (device, FIFO, socket), or cannot be read."""

    path: str
    what: str


class PointerKind(StrEnum):
    LINK = "link"
    """A symbolic link to a save (`last.ckpt`)."""
    TEXT = "text"
    """A small text file that names a save (`latest`, `latest_checkpointed_iteration.txt`)."""
    COPY = "copy"
    """A copy of a save's file under a fixed name (`last.ckpt`); only ever stated by a layout."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A framework's own "the newest is…": a hint that proves nothing, rebuilt on restore.

    `value` is the relative target of the link or copy, or the exact text of the file. `names` is
    the root key of the save it names, None where that save is not there.
    """

    path: str
    kind: PointerKind
    value: str
    names: str | None


@dataclass(frozen=True, slots=True)
class FoundSave:
    """One save: everything under the path that the same save of the trainer finished.

    Its identity is (`root_key`, `fingerprint`). `files` are its own files; `aliases` are files of
    a fixed name that hold the same step (`last.pt` beside `ckpt_10.pt`): they are shipped and
    restored with it, but come and go without making it another save.
    """

    root_key: str
    """The directory or (first) file that names the save, relative; `.` for the path itself."""
    layout: str
    files: tuple[FileEntry, ...]
    aliases: tuple[FileEntry, ...] = ()
    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    full_state: bool | None = None
    """True: an optimizer's state is in it; False: weights only; None: cannot be told safely."""
    reused_path: bool = False
    """True where the next save will take the same names, so the files may be overwritten."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What was read safely, as plain JSON values."""

    @property
    def all_files(self) -> tuple[FileEntry, ...]:
        return self.files + self.aliases

    @property
    def size(self) -> int:
        """Bytes of all its files, aliases included."""
        return sum(entry.size for entry in self.all_files)

    @property
    def fingerprint(self) -> str:
        """The generation: 32 hex digits over (path, inode, size, mtime) of `files`.

        Without ctime: a hard link made by a pin, and the removal of one, change an inode's ctime
        and must not make the same bytes look like another save.
        """
        digest = hashlib.sha256()
        for entry in sorted(self.files, key=lambda found: found.path):
            line = f"{entry.path}\0{entry.inode}\0{entry.size}\0{entry.mtime_ns}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:32]

    @property
    def identity(self) -> tuple[str, str]:
        return (self.root_key, self.fingerprint)


class Status(StrEnum):
    VERIFIED = "Verified"
    """At least one of the gates marker, container, set applies, and all that apply pass."""
    SETTLED = "Settled"
    """None of them applies; it does not change any more. See `Verdict.candidate`."""
    TORN = "Torn"
    """A gate that applies failed: not a save to resume from. True for this generation only."""
    WRITING = "Writing"
    """It changed lately, or a process has one of its files open for writing."""
    UNKNOWN = "Unknown"
    """It could not be judged (gone meanwhile, unreadable): neither good nor bad."""


class Gate(StrEnum):
    MARKER = "marker"
    CONTAINER = "container"
    SET = "set"
    QUIET = "quiet"


class Reason(StrEnum):
    """Why a verdict is what it is; used alike in reports, marks, events and docs."""

    OK = "Ok"
    NOT_QUIET = "NotQuiet"
    OPEN_WRITER = "OpenWriter"
    NOT_CLOSED = "NotClosed"
    MARKER_MISSING = "MarkerMissing"
    MARKER_INVALID = "MarkerInvalid"
    TRUNCATED = "Truncated"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    MALFORMED = "Malformed"
    MIXED_GENERATIONS = "MixedGenerations"
    FILES_MISSING = "FilesMissing"
    STEP_MISMATCH = "StepMismatch"
    UNSAFE_ENTRY = "UnsafeEntry"
    BEING_REMOVED = "BeingRemoved"
    GONE = "Gone"
    UNREADABLE = "Unreadable"


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate's answer. `passed` is None where the gate does not apply or cannot be judged here.

    `detail` names the file and says what is wrong (or what was checked).
    """

    name: Gate
    passed: bool | None
    detail: str
    reason: Reason = Reason.OK


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about one generation of one save.

    `candidate` is true where it may be resumed from: Verified, or Settled and closed by its
    writer or followed by another save.
    """

    status: Status
    gates: tuple[GateResult, ...]
    reason: Reason
    message: str
    candidate: bool
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the whole checkpoint directory."""

    files: tuple[FileEntry, ...]
    """Every regular file, sorted by path; nothing below `.rtj`."""
    links: tuple[LinkEntry, ...]
    odd: tuple[OddEntry, ...]
    saves: tuple[FoundSave, ...]
    """Oldest first where their order is known (by step, else epoch and step), else by root key."""
    pointers: tuple[Pointer, ...]
    companions: tuple[FileEntry, ...]
    """Small files beside the saves that belong to none: args, tokenizer, the script's pointer."""
    shrinking: frozenset[str] = frozenset()
    """Root keys whose file set only lost files in this very look: perhaps being rotated away."""
    left: tuple[FileEntry, ...] = ()
    """What a restore laid and a later save did not rewrite: in none of the others. See
    `checkpoints.laid`."""
    directories: tuple[str, ...] = ()
    """Every directory, sorted by path, empty ones too; nothing below `.rtj`."""

    @property
    def lying(self) -> tuple[FileEntry, ...]:
        """Every regular file there is, also what is left: whoever makes place looks at these."""
        return (*self.files, *self.left)


@dataclass(frozen=True, slots=True)
class Expectations:
    """What a layout may count on when it judges the completeness of a set.

    `whole` is false where this directory belongs to one pod of several, so that other ranks'
    files are rightly absent; the union of the parts is then judged by `Layout.union_gate`.
    `name_sets` are the file-name patterns (digits replaced by `#`) of earlier good saves of the
    same layout, newest last.
    """

    world_size: int | None = None
    whole: bool = True
    name_sets: tuple[frozenset[str], ...] = ()
    earlier: bool = False
    """It was made before this attempt, perhaps by another number of processes."""

    @property
    def demanded(self) -> int | None:
        """Processes that a save must have a file of, where its names state ranks; None where only
        the save itself tells how many there were."""
        return None if self.earlier else self.world_size


@dataclass(frozen=True, slots=True)
class PartFiles:
    """One rank's share of a save, as its part record tells it: what `union_gate` judges."""

    rank: int
    files: Mapping[str, int]
    """Relative path -> size in bytes."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """`Verdict.facts` of that rank."""


@dataclass(frozen=True, slots=True)
class WantedFile:
    """A file that a manifest says belongs to the save to restore. `sha256` in lower-case hex."""

    path: str
    size: int
    sha256: str
    mode: int = 0o644
