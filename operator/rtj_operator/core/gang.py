"""The gang as one pass sees it: each rank with its pod, its report and its node.

Which pod is a rank's own is a function of status.placements, so a leftover of an older attempt
can never be mistaken for it. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rtj_api import contract, wire
from rtj_api.status import StandIn, Status

from rtj_operator.core.lastwords import last_words_of
from rtj_operator.core.observed import JobSpec, JobView, NodeView, Observed, PodView, ReportView
from rtj_operator.core.policy import Policy


class Alarm:
    """Collects the moments at which a pass wants to look again.

    Mutable on purpose and local to one call of `decide`: every comparison of `now` with a
    deadline goes through it, so no wait can be without an end.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self.at: float | None = None

    def has_passed(self, moment: float) -> bool:
        """True once `moment` is here; else it is remembered as a time to wake."""
        if self.now >= moment:
            return True
        self.at = moment if self.at is None else min(self.at, moment)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One rank. `pod` is None while none of the recorded name exists. `made_in`: the attempt from
    which on this pod is the rank's; a spare was made in an earlier one."""

    rank: int
    name: str
    made_in: int
    stand_in: StandIn | None = None  # its pod was a spare
    pod: PodView | None
    view: ReportView | None
    report: wire.Report | None  # this pod's newest, of whatever attempt
    node: NodeView | None

    @property
    def is_ending(self) -> bool:
        """Its pod is being ended, by the API server's or by its own supervisor's word."""
        is_deleted = self.pod is not None and self.pod.deleting_since is not None
        return is_deleted or (self.report is not None and self.report.terminating)

    def has_reached(self, attempt: int, *phases: wire.SidecarPhase) -> bool:
        """Its sidecar reports one of `phases` for that attempt."""
        return (
            self.report is not None
            and self.report.attempt == attempt
            and self.report.phase in phases
        )

    def ended_trainer(self, attempt: int) -> wire.TrainerView | None:
        """The trainer of that attempt, if it ended here."""
        if self.report is None or self.report.trainer.attempt != attempt:
            return None
        trainer = self.report.trainer
        return trainer if trainer.state == wire.TrainerState.EXITED else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Everything a rule needs. Built once a pass by `gather`."""

    now: float
    policy: Policy
    job: JobView
    spec: JobSpec
    status: Status
    observed: Observed
    members: tuple[Member, ...]
    surplus: tuple[PodView, ...]  # pods of this job that are no rank's own, nor wait for a rank
    spares: tuple[PodView, ...]  # pods that were never given a rank
    alarm: Alarm = field(compare=False)

    @property
    def through_store(self) -> bool:
        """Reports of this attempt cannot be had: what they would say goes through the store."""
        current = self.status.current
        return current is not None and current.through_store

    @property
    def attempt(self) -> int:
        return self.status.attempt

    @property
    def rank_zero(self) -> Member:
        return self.members[0]

    @property
    def pinned(self) -> dict[int, frozenset[str]]:
        """By rank with a living pod: the saves whole and pinned there."""
        return {rank: frozenset(report.pinned) for rank, report in self._living.items()}

    @property
    def shares(self) -> dict[int, frozenset[str]]:
        """By rank with a living pod: the saves whose own files of that rank are pinned there."""
        return {rank: frozenset(report.shares) for rank, report in self._living.items()}

    @property
    def _living(self) -> dict[int, wire.Report]:
        return {
            m.rank: m.report
            for m in self.members
            if m.report is not None and m.pod is not None and not m.pod.is_terminal
        }

    @property
    def urls(self) -> dict[int, str]:
        """By rank: where its sidecar serves files."""
        return {
            m.rank: contract.sidecar_url(m.pod.ip, port=m.pod.status_port)
            for m in self.members
            if m.pod is not None and m.pod.ip and m.pod.status_port and not m.pod.is_terminal
        }

    def url_host(self, rank: int) -> str | None:
        pod = self.members[rank].pod
        return pod.ip if pod is not None else None


def newest_report(observed: Observed, pod: PodView) -> wire.Report | None:
    """This pod's newest report, heard or carried by the kubelet."""
    heard, carried = observed.report_of(pod), last_words_of(pod)
    if heard is None or (carried is not None and carried.sequence > heard.sequence):
        return carried
    return heard


def gather(observed: Observed, *, policy: Policy, alarm: Alarm, status: Status) -> Gang:
    """Sorts pods into ranks. `status` is the job's, possibly with newer reports absorbed.

    Needs a job with a spec.
    """
    job = observed.job
    if job is None or job.spec is None:
        raise ValueError("gather needs a job with a spec")
    by_name = {pod.name: pod for pod in observed.pods}
    played = {stand_in.rank: stand_in for stand_in in status.stand_ins}
    members = []
    for rank, made_in in enumerate(status.placements):
        stand_in = played.get(rank)
        name = (
            contract.pod_name(job=job.key.name, rank=rank, made_in=made_in, job_uid=job.uid)
            if stand_in is None
            else spare_name(job, spare=stand_in.spare, made_in=stand_in.made_in)
        )
        pod = by_name.pop(name, None)
        members.append(
            Member(
                rank=rank,
                name=name,
                made_in=made_in,
                stand_in=stand_in,
                pod=pod,
                view=observed.reports.get(pod.uid) if pod else None,
                report=newest_report(observed, pod) if pod else None,
                node=observed.nodes.get(pod.node) if pod and pod.node else None,
            )
        )
    others = sorted(by_name.values(), key=lambda pod: pod.name)
    return Gang(
        now=observed.now,
        policy=policy,
        job=job,
        spec=job.spec,
        status=status,
        observed=observed,
        members=tuple(members),
        surplus=tuple(pod for pod in others if not _waits_for_rank(pod)),
        spares=tuple(pod for pod in others if _waits_for_rank(pod)),
        alarm=alarm,
    )


def spare_name(job: JobView, *, spare: int, made_in: int) -> str:
    return contract.spare_name(job=job.key.name, spare=spare, made_in=made_in, job_uid=job.uid)


def _waits_for_rank(pod: PodView) -> bool:
    """A spare that no directive was ever written to. One that was recorded for a rank and never
    told of it waits again, once the record says otherwise."""
    return pod.spare is not None and pod.directive is None
