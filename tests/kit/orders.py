"""The directives of one attempt, as the operator gives them to one pod, each waited for."""

from __future__ import annotations

from rtj_api.wire import Phase, Report, Resume, SidecarPhase

from kit.podlike import PodLike

SCRATCH = Resume(scratch=True)
SECONDS = 90.0  # under load


def prepared(pod: PodLike, attempt: int, **asked: object) -> Report:
    pod.direct(Phase.PREPARE, attempt, **asked)  # type: ignore[arg-type]
    report = pod.until_phase(SidecarPhase.PREPARED, attempt, seconds=SECONDS)
    assert report.phase is SidecarPhase.PREPARED, report.problem
    return report


def gone(pod: PodLike, attempt: int, resume: Resume = SCRATCH) -> Report:
    """Restored, and told to go."""
    pod.direct(Phase.RESTORE, attempt, resume=resume)
    report = pod.until_phase(SidecarPhase.RESTORED, attempt, seconds=SECONDS)
    assert report.phase is SidecarPhase.RESTORED, report.problem
    pod.direct(Phase.GO, attempt, resume=resume)
    return report


def first_start(pod: PodLike) -> Report:
    """The first attempt of a new run; its report before the choice."""
    report = prepared(pod, 1)
    gone(pod, 1)
    return report
