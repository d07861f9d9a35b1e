"""Whether training goes on as before: what is told of its steps, against their first pass.

What is found is told; a trainer whose loss left the numbers, or that did not load its save, is
stopped before anything of it is committed. Must never convict a trainer by its log lines alone of
anything but a loss that is no number, and never fail over a line.
"""

from __future__ import annotations

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.rules.divergence import Divergence, Kind, diverged
from rtj_api.rules.replay import Replay, ReplayState, compared, ignored
from rtj_api.wire import DivergenceView, ReplayView

from rtj_sidecar.ignoring import stop_ignored
from rtj_sidecar.station import Station, log
from rtj_sidecar.trainer import trail as trails
from rtj_sidecar.trainer.losses import LOSS_BAND

_WORDS = 1024  # of the newest steps, of which each rank and micro batch may tell
_ENOUGH = 64  # steps run twice: what comes later is the new attempt's own affair


def verify(at: Station) -> None:
    """With each word of the trainer's after the go."""
    entry = at.journal.entry
    if not at.is_after_go or entry.resume is None or not at.is_training:
        return
    if entry.divergence is None:
        found = _divergence(at)
        if found is not None:
            _told_divergence(at, found)
    at.reporter.set(divergence=at.journal.entry.divergence)
    is_over = at.journal.entry.divergence is not None
    if not is_over and not entry.resume.scratch and entry.resume.step is not None:
        _replay(at, entry.resume.step)
        at.reporter.set(replay=at.journal.entry.replay)


def told_with(at: Station, step: int | None) -> dict[str, object]:
    """The facts that go with a save of the running attempt: how its loss lies, and its steps."""
    facts: dict[str, object] = {}
    band = at.losses.band()
    if band is not None:
        facts[LOSS_BAND] = band
    if at.steps.best:
        whole = trails.with_save(_older(at), at.steps, step=step, **_attempt(at))
        facts[trails.FACT] = whole.dump()
    return facts


def keep_trail(at: Station) -> None:
    """The attempt is over: its steps are the first pass of the next one's."""
    if not at.steps.best:
        return
    found, replay = at.journal.entry.divergence, at.journal.entry.replay
    bad = found.step if found is not None else None
    if replay is not None and replay.state in (ReplayState.DIVERGED, ReplayState.IGNORED):
        bad = 0  # no step of it goes on from where the run was
    _write(at, trails.next_trail(_older(at), at.steps, bad=bad, **_attempt(at)))


def begin_trail(at: Station) -> None:
    """At the go. Another line of saves has nothing to do with the steps of this one."""
    resume = at.journal.entry.resume
    if resume is not None and (resume.scratch or resume.asked is not None):
        _write(at, trails.Trail())


def _write(at: Station, trail: trails.Trail) -> None:
    try:
        _file(at).write(trail)
    except OSError as error:
        log.warning("the steps of this attempt are not kept: %s", error)


def _file(at: Station) -> trails.TrailFile:
    return trails.TrailFile(at.link.run / contract.FILE_TRAIL)


def _attempt(at: Station) -> trails.Attempt:
    entry = at.journal.entry
    scratch = entry.resume is not None and entry.resume.scratch
    return {"world": entry.world_of_go or 0, "scratch": scratch}


def _older(at: Station) -> trails.Trail:
    """Of the attempts before, as this pod saw them; what it did not see, as its save records it."""
    own, saved = _file(at).read(), trails.parsed(at.journal.entry.trail or {})
    resume = at.journal.entry.resume
    if resume is None or resume.scratch:
        return own
    return trails.joined(own, saved, world=at.journal.entry.world_of_go or 0)


def _divergence(at: Station) -> Divergence | None:
    """A progress file is believed; of log lines only what no other kind of loss can say."""
    told = [(r.step, r.loss) for r in at.steps.file[-_WORDS:] if r.loss is not None]
    if told:
        return diverged(told)
    losses = [(r.step, r.loss) for r in at.steps.log[-_WORDS:] if r.loss is not None]
    found = diverged(losses or [(None, loss) for loss in at.losses.log])
    return found if found is not None and found.kind is Kind.NOT_FINITE else None


def _told_divergence(at: Station, found: Divergence) -> None:
    view = DivergenceView(kind=found.kind, step=found.step, message=found.message)
    at.journal.note(divergence=view)
    log.error("%s", found.message)
    if at.site.config.verify_resume.stop_on_divergence:
        _stop(at, found.message)


def _stop(at: Station, message: str) -> None:
    at.reporter.set(divergence=at.journal.entry.divergence, replay=at.journal.entry.replay)
    at.kill_trainer(up_to=at.attempt)
    at.fail(Reason.TRAINING_DIVERGED, message, retrying=True)


def _replay(at: Station, resumed: int) -> None:
    entry = at.journal.entry
    if entry.replay is not None and _is_settled(entry.replay):
        return
    first, second = trails.first_pass(_older(at)), at.steps.best
    is_exact = bool(at.steps.file)
    found = ignored(first, second, resumed=resumed, is_exact=is_exact)
    found = found or compared(first, second, resumed=resumed)
    if found is None:
        return
    view = _view(found)
    if entry.replay is not None and entry.replay.state == view.state and not _is_settled(view):
        return
    at.journal.note(replay=view)
    log.info("steps run twice: %s: %s", found.state, found.message)
    if not is_exact or not at.is_training:
        return
    if found.state is ReplayState.IGNORED:
        stop_ignored(at, found.message)
    elif found.state is ReplayState.DIVERGED and at.site.config.verify_resume.stop_on_divergence:
        _stop(at, f"after the resume it is another training: {found.message}")
    elif found.state is ReplayState.DRIFT and at.site.config.verify_resume.stop_on_drift:
        _stop(at, f"after the resume it is not as before: {found.message}")


def _is_settled(view: ReplayView) -> bool:
    is_over = view.state in (ReplayState.DIVERGED, ReplayState.IGNORED, ReplayState.NO_OVERLAP)
    return is_over or view.compared >= _ENOUGH


def _view(found: Replay) -> ReplayView:
    return ReplayView(
        state=found.state,
        compared=found.compared,
        step=found.step,
        lost=found.lost,
        message=found.message,
    )
