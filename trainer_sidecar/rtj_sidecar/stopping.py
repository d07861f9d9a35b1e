"""The step at which all ranks save and end, as the trainer of this pod is told of it.

The file is the record: it is there once a trainer was told, and an agent that comes back reads it.
Its time may become shorter, where this pod turns out to have less than the others. Must never name
a second step to one trainer, for it may have ended at the first.
"""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import ValidationError
from rtj_api import contract
from rtj_api.wire import Directive, Phase, StopStep, TrainerState

from rtj_sidecar.station import Station, log
from rtj_sidecar.trainer.supervisor_link import write_whole


def stop_file(at: Station) -> Path:
    return at.link.run / contract.FILE_STOP_WISH


def told_stop(at: Station, *, attempt: int) -> int | None:
    """The step that the trainer of that attempt has been told of."""
    word = _word(at, attempt=attempt)
    return None if word is None else word.step


def _word(at: Station, *, attempt: int) -> StopStep | None:
    try:
        word = StopStep.model_validate_json(stop_file(at).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None
    return word if word.attempt == attempt else None


def is_asked(at: Station, directive: Directive) -> bool:
    """It names a step to the trainer that runs here and has not been told of one, or less time for
    the one that it was told of."""
    return (
        directive.stop_step is not None
        and at.site.config.obeys_stop
        and directive.phase is Phase.GO
        and directive.attempt == at.link.told_to_go()
        and _is_news(directive, _word(at, attempt=directive.attempt))
        and not _has_ended(at, attempt=directive.attempt)
    )


def _is_news(directive: Directive, word: StopStep | None) -> bool:
    if word is None:
        return True
    within = directive.stop_within
    if within is None or word.until is None or word.step != directive.stop_step:
        return False
    return time.time() + within < word.until


def _has_ended(at: Station, *, attempt: int) -> bool:
    """By itself, then: its end with 0 may be the job's success."""
    trainer = at.supervisor.trainer if at.supervisor is not None else None
    if trainer is None or trainer.attempt != attempt:
        return False
    return trainer.state is TrainerState.EXITED


def tell_stop(at: Station, directive: Directive) -> None:
    """Write RTJ_STOP_FILE. The seconds count from now: clocks of two nodes differ. Raises
    OSError."""
    if directive.stop_step is None:
        return
    within = directive.stop_within
    word = StopStep(
        attempt=directive.attempt,
        step=directive.stop_step,
        reason=directive.stop_reason or "",
        until=None if within is None else time.time() + within,
        signal=at.site.config.stop_signal,
    )
    write_whole(stop_file(at), word.dump_json())
    log.info("the trainer is told to stop at step %d: %s", word.step, word.reason)
