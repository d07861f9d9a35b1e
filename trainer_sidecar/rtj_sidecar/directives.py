"""Reading directives, and the rule which of them is accepted.

Must never accept one that is meant for another pod or another job, or that is not above the
highest accepted: an annotation can be read late, twice, or from an older pod of the same name.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from rtj_api.contract import SIGNED_PREFIX
from rtj_api.wire import Directive


@dataclass(frozen=True, slots=True)
class Refused:
    why: str
    is_old: bool = False  # seen before, or overtaken: the annotation comes after what was pushed


def accept(
    directive: Directive, *, job_uid: str, pod_uid: str, highest: Directive | None
) -> Refused | None:
    """None where it is to be carried out."""
    if directive.job_uid != job_uid:
        return Refused(f"it is of job {directive.job_uid}, this pod is of {job_uid}")
    if directive.pod_uid != pod_uid:
        return Refused(f"it is for pod {directive.pod_uid}, this is {pod_uid}")
    if highest is None:
        return None
    if directive.rank != highest.rank:
        return Refused(f"it is for rank {directive.rank}, this pod plays rank {highest.rank}")
    # The same directive with the permission to claim is the answer to a question of ours; that to
    # go through the store stands above the go, and is never taken back within an attempt.
    new, old = (
        (d.attempt, d.seq, d.through_store is not None, d.may_claim) for d in (directive, highest)
    )
    if new <= old:
        why = f"attempt {directive.attempt} seq {directive.seq} was seen before"
        return Refused(why, is_old=True)
    return None


class DirectiveFile:
    """The annotation in the downward-API volume, as a file. Cheap to ask many times a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self.problem: str | None = None
        self.newest: Directive | None = None  # as it stands in the file, accepted or not

    def read(self) -> Directive | None:
        """The directive if the file is not the one read last; None where there is no new one.

        The kubelet replaces the volume's content by renaming a link, so a stat through it sees
        another inode as soon as the annotation has changed.
        """
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen == self._seen:
            return None
        try:
            text = self._path.read_text(encoding="utf-8")
        except OSError:
            return None
        self._seen = seen
        if not text.strip():
            return None
        try:
            directive = Directive.model_validate_json(text)
        except ValidationError as error:
            self.problem = f"annotation directive cannot be read: {error.errors()[0]}"
            return None
        self.problem = None
        self.newest = directive
        return directive


def warm_up() -> None:
    """Load what `signed` needs, in a thread: the first signature must not wait for it."""
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: F401


def signed(body: bytes, *, signature: str, by: Directive | None) -> Directive:
    """A directive that came by HTTP, if the key in the annotation `by` has signed it.

    Its order and addressees are `accept`'s affair, as with those that come by annotation. Raises
    PermissionError where it is not signed so, ValueError where it cannot be read.
    """
    # Imported late: the agent answers first.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if by is None or by.push_key is None:
        raise PermissionError("no annotation has named a key yet")
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(by.push_key, validate=True))
        key.verify(base64.b64decode(signature, validate=True), SIGNED_PREFIX + body)
    except (ValueError, InvalidSignature) as error:
        raise PermissionError("not signed with the key in this pod's annotation") from error
    return Directive.model_validate_json(body)
