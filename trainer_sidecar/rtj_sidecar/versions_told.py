"""Tells when a trainer saves with other versions of its libraries than the save it began from.

A step that cannot be loaded, or a loss that moved, has its cause there more often than in the
files. Must never hold a save back, nor a start: a change is told, and healed by the next attempt
that begins from a save of the new versions.
"""

from __future__ import annotations

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.versions import changed, versions_of
from rtj_sidecar.localsave import LocalSave
from rtj_sidecar.station import Station

KEY = "versions"


def tell_versions(at: Station, local: LocalSave) -> None:
    """Compares a save of the running attempt with what that attempt began from, if it did."""
    entry = at.journal.entry
    if local.record.attempt != at.attempt or entry.resume is None:
        return
    differ = changed(entry.versions, versions_of(local.record.facts.facts))
    if not differ:
        at.reporter.heal(KEY)
        return
    words = ", ".join(f"{name} {old}, now {new}" for name, old, new in differ)
    at.reporter.degrade(
        KEY,
        Reason.FRAMEWORK_CHANGED,
        f"rank {at.site.config.rank}: {entry.resume.name} was saved with {words}. Training goes "
        "on; if it does not load or its loss moved, use the image it was saved with",
        retrying=False,
    )
