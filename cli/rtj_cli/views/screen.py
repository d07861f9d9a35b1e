"""What `rtj watch` draws each time. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rtj_cli.jobs import Raw, Seen
from rtj_cli.views import describing, timeline, why
from rtj_cli.views.words import clock

SHOWN_ATTEMPTS = 3


def lines(job: Seen, *, pods: Sequence[Raw], now: float) -> list[str]:
    found = [clock(now), *why.explain(job, pods=pods, now=now).lines(), ""]
    told = describing.pod_lines(pods)
    if told:
        found += [*told, ""]
    newest = job.status.attempts[-SHOWN_ATTEMPTS:]
    status = job.status.model_copy(update={"attempts": newest})
    return found + timeline.lines(Seen(job.raw, status), now=now)
