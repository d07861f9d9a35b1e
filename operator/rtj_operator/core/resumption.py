"""How training goes on after a resume, as the sidecars find it: told, held for, never judged here.

Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.rules.replay import ReplayState
from rtj_api.status import CheckpointStatus
from rtj_api.wire import LossState, ReplayView

from rtj_operator.core.faults import Fault
from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Note

HOLD = "Hold"  # a value of recovery.verifyResume.onDivergence
_ORDER = (
    ReplayState.NO_OVERLAP,
    ReplayState.MATCH,
    ReplayState.DRIFT,
    ReplayState.IGNORED,
    ReplayState.DIVERGED,
)
_WRONG = frozenset({ReplayState.DRIFT, ReplayState.IGNORED, ReplayState.DIVERGED})


def replays(gang: Gang) -> list[ReplayView]:
    """What the ranks found of steps run twice in this attempt, the worst last."""
    found = [
        m.report.replay
        for m in gang.members
        if m.report is not None
        and m.report.replay is not None
        and m.report.trainer.attempt == gang.attempt
    ]
    return sorted(found, key=lambda view: _ORDER.index(view.state))


def is_held_for(gang: Gang, first: Fault) -> bool:
    """A diverged training is to wait for a person. A sidecar stops for a drift only where the spec
    wants that held."""
    if first.reason != Reason.TRAINING_DIVERGED:
        return False
    if gang.spec.on_divergence == HOLD:
        return True
    report = gang.members[first.rank].report
    if report is None or report.divergence is not None or report.replay is None:
        return False
    return report.replay.state == ReplayState.DRIFT


def suspect_of(gang: Gang, first: Fault) -> tuple[str, str] | None:
    """The save that a diverged training speaks against at once, and why: one made at or after the
    first bad step, else the one that was resumed, where it was another training from there on."""
    report = gang.members[first.rank].report
    if first.reason != Reason.TRAINING_DIVERGED or report is None:
        return None
    zero, resume, bad = gang.rank_zero.report, gang.status.resume, report.divergence
    if bad is not None and bad.step is not None and zero is not None:
        newest = next((c for c in zero.candidates if c.invalid is None), None)
        if newest is None or newest.step is None or newest.step < bad.step:
            return None
        return newest.name, f"save {newest.name} was made after the loss went wrong"
    replay = report.replay
    is_other = replay is not None and replay.state == ReplayState.DIVERGED
    if is_other and resume is not None and resume.name is not None:
        return resume.name, f"from save {resume.name} on it is another training than before"
    return None


def is_otherwise(checkpoint: CheckpointStatus) -> bool:
    """Steps run twice are not as they were."""
    found = checkpoint.resume_replay
    return found is not None and found.state in _WRONG


def is_outside(checkpoint: CheckpointStatus) -> bool:
    """The first losses after the resume are not those that the save records."""
    found = checkpoint.resume_loss
    return found is not None and found.state == LossState.OUTSIDE


def troubles(checkpoint: CheckpointStatus) -> list[tuple[str, str]]:
    """For the condition Degraded: the training goes on, and not as before."""
    found = checkpoint.resume_replay
    if found is None or not is_otherwise(checkpoint):
        return []
    return [(Reason.RESUMED_OTHERWISE, f"since the last resume: {found.message}")]


def notes(old: CheckpointStatus, new: CheckpointStatus) -> tuple[Note, ...]:
    """Events where the first losses are not those that the save records, and where steps run twice
    are not as they were."""
    return (*_loss_notes(old, new), *_replay_notes(old, new))


def _replay_notes(old: CheckpointStatus, new: CheckpointStatus) -> tuple[Note, ...]:
    found, before = new.resume_replay, old.resume_replay
    if found is None or not is_otherwise(new):
        return ()
    if before is not None and (before.state, before.lost) == (found.state, found.lost):
        return ()
    message = f"steps run twice: {found.state}: {found.message}"
    return (Note(type="Warning", reason=Reason.RESUMED_OTHERWISE, message=message),)


def _loss_notes(old: CheckpointStatus, new: CheckpointStatus) -> tuple[Note, ...]:
    """An event where the first losses after a resume are not those that the save records."""
    found = new.resume_loss
    if found is None or found == old.resume_loss or not is_outside(new):
        return ()
    seen = "not a finite number" if found.seen is None else f"{found.seen:.6g}"
    expected = "" if found.expected is None else f", recorded {found.expected:.6g}"
    noise = "" if found.noise is None else f" (noise {found.noise:.2g})"
    message = f"the loss after the resume is {seen}{expected}{noise}"
    return (Note(type="Warning", reason=Reason.RESUMED_LOSS_OUTSIDE, message=message),)
