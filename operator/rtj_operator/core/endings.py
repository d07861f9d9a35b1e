"""The last word to rank 0's sidecar of a job that is over without success: its fence says so.

Then a job of another cluster, which cannot see that this one is gone, may go on with the run. A
courtesy, never a need: who ends too fast to hear it can be taken over by name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from rtj_api import wire
from rtj_api.status import ConditionType
from rtj_api.wire import Phase, SidecarPhase

from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.nodes import is_heard
from rtj_operator.core.observed import PodView
from rtj_operator.core.plan import Action, PatchDirective
from rtj_operator.core.queueing import freeing

FAILED, RELEASED = "failed", "released"
# The pod's own end comes with the template's grace, which the supervisor enforces.
_GRACE_SECONDS = 3600.0


def farewells(pods: Iterable[PodView]) -> tuple[Action, ...]:
    """For the pods of a job whose object is gone or going: stop, save what was saved, release.
    Those that only a queue's finalizer keeps are freed of it."""
    found: list[Action] = []
    for pod in pods:
        free = freeing(pod)
        if free is not None:
            found.append(free)
        said = pod.directive
        if said is None or said.rank != 0 or pod.is_terminal or said.ending is not None:
            continue
        if said.seq >= wire.SEQ[Phase.RELEASE]:
            continue
        last = said.model_copy(
            update={
                "phase": Phase.STOP,
                "seq": wire.SEQ[Phase.STOP],
                "grace_seconds": _GRACE_SECONDS,
                "ending": RELEASED,
                "resume": None,
                "wanted": None,
                "fast": False,
            }
        )
        found.append(
            PatchDirective(
                pod=pod.name, uid=pod.uid, resource_version=pod.resource_version, directive=last
            )
        )
    return tuple(found)


def has_last_word(gang: Gang, member: Member) -> bool:
    """A failed job's rank 0 is still to say so: its pod stays for a moment."""
    status, pod, report = gang.status, member.pod, member.report
    if not status.is_true(ConditionType.FAILED) or member.rank != 0 or pod is None:
        return False
    if pod.is_terminal or pod.deleting_since is not None or report is None:
        return False
    if report.fence is None or not is_heard(gang, pod):
        return False
    has_stopped = report.attempt == gang.attempt and report.seq >= wire.SEQ[Phase.STOP]
    if has_stopped and report.phase in (SidecarPhase.DRAINED, SidecarPhase.FAILED):
        return False
    ended = status.completion_time if status.completion_time is not None else gang.now
    return not gang.alarm.has_passed(ended + gang.policy.release_seconds)
