"""To which size an elastic gang could grow now: by the pods that wait beside it.

A pod that waits in the scheduler's queue is the question whether there is room, and disturbs
nobody; one that is placed, heard and has the newest save at hand is the answer. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.rules.elastic import size_for

from rtj_operator.core import sizes, spares
from rtj_operator.core.gang import Gang, newest_report
from rtj_operator.core.observed import PodView


def _has_fetched(gang: Gang, pod: PodView) -> bool:
    """It has a save at hand, cannot fetch one ahead, or had long enough."""
    report = newest_report(gang.observed, pod)
    waits = report.standby if report is not None else None
    if gang.spec.fenced_directory or not gang.status.ever_durable:
        return True  # what lies in a directory that others reach is there
    if waits is not None and (waits.name is not None or waits.why is not None):
        return True
    return gang.alarm.has_passed(pod.created_at + gang.policy.fetch_ahead_seconds)


def ready(gang: Gang) -> list[PodView]:
    """Pods that could take a rank at once."""
    return [p for p in gang.spares if spares.why_not_ready(gang, p) is None]


def target(gang: Gang) -> int | None:
    """The largest allowed size that is possible now and above the present one; None: none is."""
    wish, world = gang.spec.elastic, len(gang.members)
    if wish is None or gang.through_store or sizes.missing(gang) == 0:
        return None
    room = sum(_has_fetched(gang, pod) for pod in ready(gang))
    size = size_for(wish.sizes, room=world + room)
    return size if size is not None and size > world else None


def after_stop(gang: Gang, cause: str) -> int | None:
    """The size after a stop step that was agreed on for this cause; None: as it was."""
    return target(gang) if cause == Reason.SCALING_UP else None
