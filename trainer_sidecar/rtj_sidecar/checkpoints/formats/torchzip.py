"""Files of torch.save in the zip form: every member's CRC-32 proves it. `torchlegacy` has the older
form, a stream of pickles."""

from __future__ import annotations

from rtj_sidecar.checkpoints.formats import facts as safe
from rtj_sidecar.checkpoints.formats import stub, zips
from rtj_sidecar.checkpoints.formats.base import Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.types import Reason

ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")


def check(window: Window, buffer: bytearray, *, caps: Caps) -> FileCheck:
    """Reads the whole archive once. Raises MalformedError naming the member that is wrong."""
    archive = _whole(window, caps)
    checked = zips.check_members(window, archive, buffer=buffer, caps=caps)
    detail = f"{len(archive.members)} members match their CRC-32"
    if not checked:
        detail = "complete, but its writer stored no CRC-32: content cannot be checked here"
    return FileCheck("torch", True, detail, facts={**_facts(window, archive, caps), "crc": checked})


def peek(window: Window, *, caps: Caps) -> FileCheck:
    """Only the directory and `data.pkl`: cheap, for step and keys. Proves nothing: passed None."""
    archive = _whole(window, caps)
    return FileCheck("torch", None, "not checked", facts=_facts(window, archive, caps))


def _whole(window: Window, caps: Caps) -> zips.Archive:
    archive = zips.read_archive(window, caps=caps)
    if archive.start:
        raise MalformedError(f"{archive.start} foreign bytes stand before the archive")
    return archive


def _facts(window: Window, archive: zips.Archive, caps: Caps) -> dict[str, object]:
    for member in archive.members:
        top, _, rest = member.name.partition("/")
        if rest == "data.pkl" and top:
            try:
                content = zips.read_member(window, archive, member, limit=caps.pickle_bytes)
                return safe.from_state(stub.load(content, caps=caps))
            except MalformedError as error:
                if error.reason is Reason.CHECKSUM_MISMATCH:
                    raise
                # A pickle that our machine cannot follow is no proof that torch cannot.
                return {"unread": str(error)}
    raise MalformedError("it is a zip file, but none of torch.save: it has no data.pkl")
