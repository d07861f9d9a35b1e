"""Tells when this rank's trainer gives no sign of life, how it stands, and what it was doing.

The gang's operator decides: this rank may only wait for another one. Must never end a trainer.
"""

from __future__ import annotations

from collections.abc import Sequence

from rtj_api.rules.hang import Standing
from rtj_api.wire import Look, PaceView, StallView, StillView

from rtj_sidecar.station import Station, log
from rtj_sidecar.trainer.life import Life, Silence, silence

SUPERVISOR_SECONDS = 5.0  # it writes once a second: older, its container may be paused
NETWORK_SECONDS = 3.0  # the pod's network moved something within these: it may wait for that


def watch(at: Station, lines: Sequence[str], *, now: float) -> None:
    """With each look at what the trainer says, also where it says nothing."""
    state = at.supervisor
    if state is None or not at.is_training or not at.is_after_go:
        at.reporter.set(stall=None)
        return
    life = at.life.with_look(now=now)
    still = state.still if now - state.written_at <= SUPERVISOR_SECONDS else None
    if still is not None and still.kind == "stopped" and life.goes_on_without(still.since):
        still = None
    is_saving = bool(state.open_for_writing) or at.is_writing
    is_stopped = still is not None and still.kind == "stopped"
    since = still.since if still is not None else None
    life = life.with_stillness(since, now=now, is_stopped=is_stopped)
    if lines:
        life = life.with_lines(lines, now=now)
    life = life.with_step(_step(at), now=now)
    if at.progress.updated_at is not None:
        life = life.with_sign(at=at.progress.updated_at)
    if is_saving:
        life = life.with_saving(now=now, moves=still is None)
    at.life = life
    found = silence(
        life,
        standing=_standing(at, still, is_saving=is_saving, written_at=state.written_at),
        now=now,
        timeout=at.site.config.hang_timeout_seconds,
    )
    at.reporter.set(stall=_view(at, life, found) if found is not None else None)


def _step(at: Station) -> int | None:
    file, log_ = at.progress.file.step, at.progress.log.step
    return file if file is not None else log_


def _standing(
    at: Station, still: StillView | None, *, is_saving: bool, written_at: float
) -> Standing:
    if still is None:
        return Standing.WORKING
    if still.kind == "stopped":
        return Standing.STOPPED
    if still.kind != "still" or is_saving:
        return Standing.WORKING
    # Our own transfers would hide what the trainer does not move.
    network = still.network_at if not at.reporter.current.transfers else None
    if network is not None and written_at - network < NETWORK_SECONDS:
        return Standing.WORKING
    return Standing.STILL


def _view(at: Station, life: Life, found: Silence) -> StallView:
    pace = life.pace
    # What comes before an attempt's first step is none, however fast those of before were.
    usual = pace.usual if life.step is not None else None
    return StallView(
        standing=found.standing,
        since=found.since,
        fell_at=life.fell_at,
        pace=PaceView(usual=usual, longest=pace.longest, survived=pace.survived),
        stacks=_stacks(at, found),
    )


def _stacks(at: Station, found: Silence) -> list[str]:
    """What the supervisor found for this stall; asked for once."""
    name = f"{at.attempt}/{found.since:.3f}"
    known = at.supervisor.stacks if at.supervisor is not None else None
    if known is not None and known.id == name:
        return known.lines
    if at.asked_for_stacks != name:
        at.asked_for_stacks = name
        try:
            at.link.look(Look(id=name, signal=at.site.config.stack_signal))
        except OSError as error:
            log.warning("what the trainer is doing is not asked for: %s", error)
    return []
