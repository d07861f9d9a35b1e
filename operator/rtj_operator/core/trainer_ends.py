"""What an end of a trainer tells: which kind it is, where it may come from, what it said last.

A rule of the user's comes first, then memory, then the last words, then the exit code. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtj_api.reasons import Reason
from rtj_api.rules import exits, watchdog, xids
from rtj_api.rules.ends import kind_of
from rtj_api.rules.origins import Origin
from rtj_api.rules.overrides import FailureAction, fitting
from rtj_api.wire import TrainerView

from rtj_operator.core.gang import Gang

# Where how it ended says nothing of the cause.
_BY_REASON = {
    Reason.NODE_OUT_OF_MEMORY: Origin.NODE,
    Reason.TRAINER_UNHEALTHY: Origin.PASSING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`alike`: equal for ends of one kind. `signature`: what is shown of it. `gpu`: which one the
    last words name. `said`: for the message, empty or beginning with a semicolon. `action`: by a
    rule of the user's."""

    alike: str
    origin: Origin
    signature: str | None = None
    gpu: str | None = None
    said: str = ""
    action: FailureAction | None = None


def told(
    gang: Gang, end: exits.Exit, *, reason: Reason, trainer: TrainerView | None = None
) -> Told:
    """`trainer` None: its container ended, and nobody tells what it printed."""
    tail: Sequence[str] = trainer.tail if trainer is not None else ()
    error = trainer.error if trainer is not None else None
    lines = [*tail, *([error] if error else [])]
    last = error or next((line for line in reversed(tail) if line.strip()), None)
    said = f"; last words: {last.strip()[:300]}" if last else ""
    rule = fitting(gang.spec.failure_rules, end=end, lines=lines)
    if rule is not None:
        return Told(
            alike=rule.name,
            origin=Origin.PASSING,
            signature=rule.name,
            said=f"; recovery.failureRules {rule.name}: {rule.action}{said}",
            action=rule.action,
        )
    kind = kind_of(end, tail=tail, error=error, out_of_memory=reason == Reason.OUT_OF_MEMORY)
    found = kind.found
    name = found.name if found is not None else None
    if found is not None:
        said = f"; {found.text}{said}"
    if (work := watchdog.waited(lines)) is not None:
        said = f"; {work.text}{said}"
    alike, origin = kind.alike, kind.origin
    if reason in _BY_REASON:
        alike, origin = str(reason), _BY_REASON[reason]
    gpu = xids.gpu_of(found.line) if found is not None else None
    return Told(alike=alike, origin=origin, signature=name, gpu=gpu, said=said)
