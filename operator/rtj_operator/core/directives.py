"""What each sidecar is told, as a pure function of what is recorded and what is reported.

Nothing else is remembered, so an operator that comes back computes the same words. A sidecar
obeys a directive only above the highest (attempt, seq) in its journal; so repeating one is
harmless and going back is impossible. Pure.
"""

from __future__ import annotations

from typing import Any

from rtj_api import contract, wire
from rtj_api.reasons import Charge, Reason
from rtj_api.rules.stopping import StopVerdict, seconds_to_signal
from rtj_api.rules.suspicion import point_beyond
from rtj_api.status import ConditionType, PlannedStop
from rtj_api.v1alpha1 import OnExistingRun
from rtj_api.wire import Phase, SidecarPhase

from rtj_operator.core import ports, probing
from rtj_operator.core.gang import Gang, Member

HAS_RESTORED = (
    SidecarPhase.RESTORED,
    SidecarPhase.TRAINING,
    SidecarPhase.EXITED,
    SidecarPhase.DRAINING,
    SidecarPhase.DRAINED,
)


def have_all_restored(gang: Gang) -> bool:
    """Every rank holds the save of this attempt, so none would wait for another in a rendezvous."""
    return all(m.has_reached(gang.attempt, *HAS_RESTORED) for m in gang.members)


def has_gone(gang: Gang) -> bool:
    """The go of this attempt has been given to some pod: it is never taken back."""
    current = gang.status.current
    if current is not None and current.restored_at is not None:
        return True
    return any(
        m.pod is not None
        and m.pod.directive is not None
        and m.pod.directive.attempt == gang.attempt
        and m.pod.directive.seq >= wire.SEQ[Phase.GO]
        for m in gang.members
    )


def phase_for(gang: Gang) -> Phase | None:
    """What the gang is told now; None: nothing new."""
    status = gang.status
    if status.is_true(ConditionType.COMPLETE):
        return Phase.RELEASE
    if status.attempt == 0:
        return None
    if status.is_true(ConditionType.FAILED):
        return Phase.STOP
    if status.hold is not None and status.hold.reason == Reason.SUSPENDED:
        return Phase.STOP
    if not status.is_started:
        return Phase.PREPARE
    if gang.through_store or (status.resume is not None and status.resume.fast):
        return Phase.GO
    if has_gone(gang) or have_all_restored(gang):
        return Phase.GO
    return Phase.RESTORE


def _resume_of(gang: Gang) -> wire.Resume | None:
    resume = gang.status.resume
    if resume is None or not gang.status.is_started or resume.through_store:
        return None
    return wire.Resume(
        scratch=resume.scratch,
        run=resume.run,
        name=resume.name,
        step=resume.step,
        durable=resume.durable,
        peers=list(resume.peers),
        asked=resume.asked,
    )


def _coordinator(gang: Gang, member: Member, phase: Phase) -> str | None:
    """Rank 0's IP: rendezvous, and where saves are told of.

    In PREPARE only if rank 0's pod is an older one, which still has saves to name; a new one's IP
    would come later and change the directive. From the stop on the one that was said before
    stays, whatever becomes of rank 0.
    """
    if phase == Phase.PREPARE and gang.rank_zero.made_in == gang.attempt:
        return None
    said = member.pod.directive if member.pod is not None else None
    if phase in (Phase.STOP, Phase.RELEASE) and said is not None and said.coordinator:
        return said.coordinator
    return gang.url_host(0)


def _coordinator_port(gang: Gang, member: Member, coordinator: str | None) -> int | None:
    """Where rank 0's sidecar listens at `coordinator`; None where it is the common port, which
    an older sidecar takes for granted."""
    said, zero = member.pod.directive if member.pod is not None else None, gang.rank_zero.pod
    if coordinator is None:
        return None
    if zero is None or zero.ip != coordinator:
        return said.coordinator_port if said is not None else None
    return None if zero.status_port == contract.PORT_STATUS else zero.status_port


def _rendezvous_port(gang: Gang, phase: Phase) -> int | None:
    """On the hosts' network, a port that no other job wants on rank 0's node. None where every
    pod has an address of its own, or where a pod's older sidecar would not listen."""
    if phase != Phase.GO or not all(m.pod.rendezvous_told for m in gang.members if m.pod):
        return None
    return ports.rendezvous_port(gang.job.uid, attempt=gang.attempt)


def _replaced(gang: Gang, member: Member, phase: Phase, *, stops_older: bool) -> list[int]:
    """Ranks whose pods are made in this attempt while rank 0's goes on, and at a stop those that
    have none: whoever names what older trainers left need not wait for them."""
    if phase == Phase.STOP:
        said = member.pod.directive if member.pod is not None else None
        if said is not None and said.attempt == gang.attempt and said.phase == Phase.STOP:
            return list(said.replaced)  # as the pods go one by one nothing new is said
        return [m.rank for m in gang.members if m.pod is None or m.pod.is_terminal]
    if not stops_older:
        return []
    if gang.rank_zero.made_in == gang.attempt:
        return []
    return [m.rank for m in gang.members if m.made_in == gang.attempt]


def _through_store(gang: Gang) -> wire.ThroughStore | None:
    """What the choice in the pods needs of what is known here, frozen at the start."""
    resume = gang.status.resume
    if not gang.through_store or resume is None or not gang.status.is_started:
        return None
    status, policy = gang.status, gang.spec.on_existing_run
    return wire.ThroughStore(
        allow_scratch=resume.allow_scratch,
        scratch_asked=resume.scratch_asked,
        ever_durable=resume.ever_durable,
        hold_existing=policy == OnExistingRun.HOLD
        and status.starts <= 1
        and not status.beginnings.accepted,
        rank_zero_decides=gang.spec.rank_zero_decides,
        target_step=gang.spec.target_step,
    )


def desired_directive(gang: Gang, member: Member) -> wire.Directive | None:
    """The directive that this rank's pod should carry; None where nothing is to be said."""
    pod = member.pod
    phase = phase_for(gang)
    if pod is None or phase is None or pod.is_terminal:
        return None
    if pod.deleting_since is not None:
        return _to_ending(gang, member, phase)
    if pod.directive is not None and pod.directive.rank != member.rank:
        return None  # a pod plays one rank: see judges.judge_misplaced
    current = gang.status.current
    fast = phase == Phase.GO and gang.status.resume is not None and gang.status.resume.fast
    grace = None
    through_store = _through_store(gang) if phase == Phase.GO else None
    stops_older = phase == Phase.PREPARE or through_store is not None
    if phase == Phase.STOP or (
        stops_older and current is not None and current.charge == Charge.INTENT
    ):
        grace = gang.spec.trainer_grace_seconds
    coordinator = _coordinator(gang, member, phase)
    return wire.Directive(
        job_uid=gang.job.uid,
        pod_uid=pod.uid,
        rank=member.rank,
        attempt=gang.attempt,
        seq=wire.SEQ[phase],
        phase=phase,
        world_size=len(gang.members),
        coordinator=coordinator,
        coordinator_port=_coordinator_port(gang, member, coordinator),
        rendezvous_port=_rendezvous_port(gang, phase),
        resume=_resume_of(gang) if phase in (Phase.RESTORE, Phase.GO) else None,
        fast=fast,
        grace_seconds=grace,
        # Rank 0's sidecar alone claims; to the others it would be a new directive.
        may_claim=current.may_claim if current is not None and member.rank == 0 else False,
        claim_over=current.claim_over if current is not None and member.rank == 0 else None,
        wanted=_wanted(gang) if stops_older and member.rank == 0 else None,
        ending="failed" if gang.status.is_true(ConditionType.FAILED) else None,
        replaced=_replaced(gang, member, phase, stops_older=stops_older),
        through_store=through_store,
        probe=probing.probe_for(gang, member, phase),
        suspects=_suspects(gang, member, phase),
        interval_seconds=_interval(gang, member, phase),
        **_stop_words(gang, member, phase),
        batches=_batches(gang) if phase == Phase.GO else None,
        forget_probes=stops_older
        and member.rank == 0
        and current is not None
        and current.charge == Charge.INTENT,
    )


def _suspects(gang: Gang, member: Member, phase: Phase) -> list[wire.Suspect]:
    """For rank 0's sidecar, which marks them; as they were when the attempt was started."""
    resume = gang.status.resume
    if member.rank != 0 or phase != Phase.GO or resume is None or not gang.status.is_started:
        return []
    return [
        wire.Suspect(
            name=s.name,
            past_step=point_beyond(s.past_step, alike=s.alike),
            is_proved=s.is_proved,
            why=f"{s.alike}{s.where}, in attempt {s.attempt}",
        )
        for s in resume.suspects
    ]


def _interval(gang: Gang, member: Member, phase: Phase) -> float | None:
    """What rank 0's trainer is told, which decides for all when to save. The others keep what they
    were told at the go: a thousand annotations are not worth a figure that nobody reads."""
    advice = gang.status.interval
    if phase != Phase.GO or advice is None:
        return None
    said = member.pod.directive if member.pod is not None else None
    is_told = said is not None and (said.attempt, said.phase) == (gang.attempt, phase)
    if member.rank != 0 and said is not None and is_told:
        return said.interval_seconds
    return advice.published_seconds


def _batches(gang: Gang) -> wire.Batches | None:
    """As recorded with the attempt: a spec that changes meanwhile is no affair of its trainers."""
    shown = gang.status.elastic
    if shown is None:
        return None
    return wire.Batches(
        accumulation=shown.gradient_accumulation,
        global_batch=shown.global_batch,
        learning_rate_scale=shown.learning_rate_scale,
    )


def _stop_words(gang: Gang, member: Member, phase: Phase) -> dict[str, Any]:
    """The stop step, once it may be told here: pods that are ending hear of it first, and the
    others when those have it, or one of them would end alone. What was said is never taken back."""
    asked = gang.status.asked_stop
    said = member.pod.directive if member.pod is not None else None
    if asked is None or phase != Phase.GO:
        return {}
    if said is not None and said.attempt == gang.attempt and said.stop_step is not None:
        names = ("stop_step", "stop_reason", "stop_within")
        words = {name: getattr(said, name) for name in names}
        sooner = _within_own_grace(member, asked)
        return words if sooner is None else {**words, "stop_within": sooner}
    ending = [m for m in gang.members if m.rank in asked.ranks and m.is_ending]
    have_heard = all(m.report is not None and m.report.stop_step == asked.step for m in ending)
    if asked.verdict != StopVerdict.AGREED or not (have_heard or member.is_ending):
        return {}
    within = None if asked.until is None else round(max(0.0, asked.until - gang.now), 3)
    sooner = _within_own_grace(member, asked)
    if sooner is not None and within is not None:
        within = min(within, sooner)
    return {"stop_step": asked.step, "stop_reason": asked.cause, "stop_within": within}


def _within_own_grace(member: Member, asked: PlannedStop) -> float | None:
    """Seconds from its deletion until the trainer of an ending pod is to get its SIGTERM, where
    that is before the gang's time is over: its grace is shorter, and it would be killed unasked.
    The same in each pass, or it would be told anew in each."""
    pod = member.pod
    if pod is None or pod.deleting_since is None or pod.deletion_deadline is None:
        return None
    within = round(seconds_to_signal(pod.deletion_deadline - pod.deleting_since), 3)
    if asked.until is None or pod.deleting_since + within >= asked.until:
        return None
    return within


def untold_of_stop(gang: Gang) -> list[int]:
    """Ranks that train and whose pods do not carry the step."""
    return [
        m.rank
        for m in gang.members
        if m.pod is not None
        and not m.pod.is_terminal
        and m.ended_trainer(gang.attempt) is None
        and (m.pod.directive is None or m.pod.directive.stop_step is None)
    ]


def _to_ending(gang: Gang, member: Member, phase: Phase) -> wire.Directive | None:
    """Nothing but a stop step is news to a pod that is being ended while its trainer runs."""
    said = member.pod.directive if member.pod is not None else None
    words = _stop_words(gang, member, phase)
    if said is None or not words or (said.attempt, said.phase) != (gang.attempt, Phase.GO):
        return None
    return said.model_copy(update=words)


def _wanted(gang: Gang) -> wire.Wanted | None:
    current = gang.status.current
    if current is None or current.wanted is None:
        return None
    return wire.Wanted(value=current.wanted.value, asked=current.wanted.asked)


def has_accepted(member: Member, directive: wire.Directive) -> bool:
    """Its sidecar has this directive, or a later one, in its journal."""
    report = member.report
    return report is not None and (report.attempt, report.seq) >= (directive.attempt, directive.seq)
