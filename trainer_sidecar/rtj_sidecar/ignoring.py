"""A trainer that did not load what it was given: stopped, and told which flag its framework needs.

Must never be called on log lines alone.
"""

from __future__ import annotations

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.layouts import layout_named
from rtj_sidecar.station import Station

_SHOWN = 500  # characters of a guide's words
_FLAG = 'checkpoint.resumeArgs, e.g. ["--resume", "$(RTJ_RESUME_CHECKPOINT)"]'


def stop_ignored(at: Station, message: str) -> None:
    """Stops the trainer before anything more of it is saved; the operator holds the job."""
    at.kill_trainer(up_to=at.attempt)
    at.fail(Reason.CHECKPOINT_IGNORED, f"{message}. {_hint(at)}")


def _hint(at: Station) -> str:
    entry = at.journal.entry
    name = entry.resume.name if entry.resume is not None else None
    layout = next((c.layout for c in at.candidates if c.name == name), None)
    saves = at.directory.saves
    layout = layout or next((s.record.facts.layout for s in saves if s.record.name == name), None)
    known = layout_named(layout or at.site.config.layout)
    if known is None:
        return f"Make it resume: {_FLAG}"
    guide = known.guides[0]
    return f"To resume {guide.products[0]} ({known.name}): {guide.resumes[:_SHOWN]}"
