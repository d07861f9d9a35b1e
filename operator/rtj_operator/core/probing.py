"""The user's probe as the operator sees it: who is told of it, and how far it is. Pure."""

from __future__ import annotations

from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, TrainerState, TrialState

from rtj_operator.core.gang import Gang, Member


def probe_for(gang: Gang, member: Member, phase: Phase) -> wire.Probe | None:
    """What rank 0's pod is told. Once told it stays, whatever becomes of the spec: a word that
    cannot be obeyed any more would only look like one that was."""
    if member.rank != 0 or phase not in (Phase.RESTORE, Phase.GO):
        return None
    said = member.pod.directive if member.pod is not None else None
    if said is not None and (said.attempt, said.phase) == (gang.attempt, phase):
        return said.probe
    return gang.spec.probe


def running(gang: Gang) -> str | None:
    """What is waited for while the probe runs."""
    report = gang.rank_zero.report if gang.members else None
    trial = report.trial if report is not None and report.attempt == gang.attempt else None
    if trial is None or trial.state != TrialState.RUNNING:
        return None
    return f"the probe runs on {trial.name}, for at most {trial.limit_seconds:g} s"


def not_run(gang: Gang) -> list[tuple[str, str]]:
    """Rank 0 trains from a save on which its sidecar never ran the probe that it was told of: it is
    of an older version, which does not know the word."""
    resume = gang.status.resume
    if not gang.members or not gang.status.is_started or resume is None or gang.through_store:
        return []
    zero = gang.rank_zero
    said = zero.pod.directive if zero.pod is not None else None
    report = zero.report
    if said is None or said.probe is None or said.attempt != gang.attempt or report is None:
        return []
    trains = (report.trainer.attempt, report.trainer.state) == (
        gang.attempt,
        TrainerState.RUNNING,
    )
    if not trains or resume.name is None or (report.trial and report.trial.name == resume.name):
        return []
    return [
        (
            Reason.PROBE_NOT_RUN,
            f"checkpoint.validation.probe was not run on {resume.name}: the sidecar of rank 0 "
            "does not know it. Use a sidecar image of this operator's version (spec.sidecar.image)",
        )
    ]
