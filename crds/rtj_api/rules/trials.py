"""What a failed probe means: the save, or the probe?

A probe is the user's own program, so one failure proves nothing for ever: an older save is tried,
one at a time. If that one passes, the newer is to blame and is marked. If two saves fail alike,
the probe, its image or the cluster is, and the job holds with every save untouched. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from rtj_api.rules.steering import masked
from rtj_api.wire import Candidate, TrialView

ALIKE = 2  # different saves that fail in the same way: it is not the saves
MOST = 3  # whatever the way: no more of the history is tried by itself
_SHOWN_LINES, _SHOWN_CHARACTERS = 3, 300
REMEDY = (
    "Nothing was marked. Correct or remove checkpoint.validation.probe (or its image), or ask for "
    'another try with the annotation resumable-training.dev/request: {"id": "1", "action": '
    '"restart"}'
)


def failed(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those whose probe failed and that are not marked yet."""
    return [c for c in candidates if c.failed_probe is not None and c.invalid is None]


def why_hold(
    candidates: Sequence[Candidate], *, is_last: bool = False, remedy: str = REMEDY
) -> str | None:
    """Why no further save may be tried; None while one may. `is_last`: there is no other."""
    tried = failed(candidates)
    if not tried:
        return None
    words = {c.name: c.failed_probe for c in tried}
    ways = [word.how for word in words.values() if word is not None]
    alike = max(ways.count(way) for way in ways)
    newest = tried[0].failed_probe
    told = newest.message if newest is not None else ""
    names = ", ".join(c.name for c in tried[:MOST])
    if alike >= ALIKE:
        return f"the probe failed alike on {alike} saves ({names}): {told}. {remedy}"
    if len(tried) >= MOST:
        return f"the probe failed on {len(tried)} saves ({names}): {told}. {remedy}"
    if is_last:
        return f"the probe failed on {names}, and no older save is left to try: {told}. {remedy}"
    return None


def how_it_ended(view: TrialView, *, timeout_seconds: float) -> str:
    """In words that are equal for two saves that fail alike."""
    if view.timed_out:
        return f"no answer within {timeout_seconds:g} s"
    if view.lost:
        return "the container died under it"
    if view.exit_code is not None and view.exit_code < 0:
        killed = " (out of memory)" if view.oom_kills else ""
        return f"killed by signal {-view.exit_code}{killed}"
    return f"exit code {view.exit_code}"


def shown(command: Sequence[str]) -> str:
    """The command for people: bounded, and without what looks like a secret."""
    program = " ".join(masked(command))
    if len(program) > _SHOWN_CHARACTERS:
        program = program[: _SHOWN_CHARACTERS - 1] + "…"
    return program


def message(view: TrialView, *, command: Sequence[str], how: str) -> str:
    """For people: the command, how it ended, its last lines. Bounded."""
    program = shown(command)
    lines = " | ".join(view.tail[-_SHOWN_LINES:])[-_SHOWN_CHARACTERS:]
    return f"`{program}`: {how}" + (f", last lines: {lines}" if lines else ", without a word")
