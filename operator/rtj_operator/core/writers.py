"""Pods of older attempts that may still write a checkpoint directory which other nodes reach.

A pod of a lost node goes on for as long as it likes. So that its files never mix with those of the
new attempt, nothing is chosen (and so nothing restored or started) before each such pod is proved
ended, or so long after rank 0 wrote the attempt to `<path>/.rtj/fence` that every older sidecar
has stopped its own trainer. Which ranks had such a pod is remembered in `status.olderWriters`,
for the pod's object goes away sooner than the pod. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rtj_api import contract
from rtj_api.status import Status
from rtj_api.wire import DirectoryFence, Phase, SidecarPhase, TrainerState

from rtj_operator.core.gang import Gang
from rtj_operator.core.nodes import is_heard
from rtj_operator.core.observed import PodView

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class OlderWriter:
    """A pod that has trained and was replaced. `pod` is None where its object is gone, which
    proves nothing: we or somebody else may have deleted it by force."""

    rank: int
    name: str
    pod: PodView | None


def _has_trained(status: Status, made_in: int) -> bool:
    """A pod made in that attempt may have been told to go in it or in a later one."""
    return made_in > 0 and status.resume is not None and made_in <= status.resume.attempt


def next_older_writers(gang: Gang, replaced: Collection[int]) -> list[int]:
    """What is to be remembered when these ranks get new pods. Empty: nothing."""
    status, world = gang.status, gang.spec.replicas
    if not gang.spec.fenced_directory:
        return []
    older = [*status.older_writers[:world]]
    older += [0] * (world - len(older))
    for rank in replaced:
        made_in = status.placements[rank] if rank < len(status.placements) else 0
        if _has_trained(status, made_in):
            older[rank] = made_in
    return older if any(older) else []


def older_writers(gang: Gang) -> list[OlderWriter]:
    """Those that are remembered."""
    by_name = {pod.name: pod for pod in gang.surplus}
    found = []
    for rank, made_in in enumerate(gang.status.older_writers):
        if made_in:
            name = contract.pod_name(
                job=gang.job.key.name, rank=rank, made_in=made_in, job_uid=gang.job.uid
            )
            pod = by_name.get(name) or _stood_in(gang, rank, since=made_in)
            found.append(OlderWriter(rank, pod.name if pod is not None else name, pod))
    return found


def _stood_in(gang: Gang, rank: int, *, since: int) -> PodView | None:
    """The spare's pod that played this rank from that attempt on, by the directive it carries."""
    for pod in gang.surplus:
        said = pod.directive
        if pod.spare is None or said is None or said.rank != rank:
            continue
        if pod.made_in < since <= said.attempt:
            return pod
    return None


def is_proved_ended(gang: Gang, pod: PodView) -> bool:
    """No trainer of this pod writes any more, by the word of someone who can know: the kubelet,
    the pod's own sidecar, or the person who declared its node gone or switched off."""
    if pod.is_terminal:
        return True
    trainer = pod.trainer
    if trainer is not None and not trainer.running and trainer.ended is not None:
        return True
    node = gang.observed.nodes.get(pod.node) if pod.node is not None else None
    if node is not None:
        if not node.exists:
            return True
        if any(taint.startswith(OUT_OF_SERVICE) for taint in node.taints):
            return True
    return _has_acknowledged(gang, pod)


def _has_acknowledged(gang: Gang, pod: PodView) -> bool:
    """Its sidecar says that the trainer of the highest go it was given has ended."""
    report, said = gang.observed.report_of(pod), pod.directive
    if report is None or said is None or report.lingering > 0:
        return False
    if report.trainer.state == TrainerState.RUNNING or report.phase == SidecarPhase.STOPPING:
        return False
    if (report.attempt, report.seq) < (said.attempt, said.seq):
        return False
    if said.phase == Phase.GO:
        return (
            report.trainer.state == TrainerState.EXITED and report.trainer.attempt == said.attempt
        )
    return True


def with_proofs(gang: Gang) -> list[int]:
    """`status.olderWriters` without those that are proved ended by now."""
    older = list(gang.status.older_writers)
    for writer in older_writers(gang):
        if writer.pod is not None and is_proved_ended(gang, writer.pod):
            older[writer.rank] = 0
    return older if any(older) else []


def _fence_of(gang: Gang, rank: int) -> DirectoryFence | None:
    """What stands in the directory of that rank, written for the current attempt."""
    member = gang.members[0 if gang.spec.shared_directory else rank]
    report = member.report
    if report is None or report.attempt != gang.attempt or report.directory is None:
        return None
    return report.directory if report.directory.attempt == gang.attempt else None


def _cannot_fence(gang: Gang, rank: int) -> bool:
    """That sidecar is of an older version, which prepares and writes no fence: time must do."""
    member, current = gang.members[0 if gang.spec.shared_directory else rank], gang.status.current
    if current is None or not member.has_reached(gang.attempt, SidecarPhase.PREPARED):
        return False
    return gang.alarm.has_passed(current.recorded_at + gang.policy.unfenced_writer_seconds)


def awaited(gang: Gang) -> str | None:
    """Which older writer is not yet proved ended nor surely stopped by itself; None: none."""
    if not gang.spec.fenced_directory or not gang.members:
        return None
    for writer in older_writers(gang):
        if not gang.spec.shared_directory and writer.rank >= len(gang.members):
            continue  # nobody of a smaller gang has its directory
        fence = _fence_of(gang, writer.rank)
        if not (fence.settled if fence is not None else _cannot_fence(gang, writer.rank)):
            return f"pod {writer.name} (rank {writer.rank})"
    for rank in range(1 if gang.spec.shared_directory else len(gang.members)):
        fence = _fence_of(gang, rank)
        if fence is not None and fence.followed is not None and not fence.settled:
            return f"a pod of job {fence.followed}, which had the directory before"
    return None


def why_waiting(gang: Gang) -> str | None:
    """What is waited for and what ends it, while an attempt is not started; None: nothing."""
    who = awaited(gang)
    if who is None:
        return None
    return (
        f"attempt {gang.attempt}: {who} may still write to the checkpoint directory, which other "
        "nodes reach. It is waited for until it is proved ended, or until its own sidecar must "
        "have stopped it, 20 s after the new attempt was written to .rtj/fence there. A volume "
        "that only one node may hold (ReadWriteOnce) comes only when the lost node has let it go: "
        "delete the Node or taint it with node.kubernetes.io/out-of-service once it is off"
    )


def held_back(gang: Gang) -> frozenset[int]:
    """Ranks that must not prepare yet: an older pod that is being ended, and is heard, still gives
    its trainer its grace, and what they would write to the fence now would cut that short."""
    found = set()
    for writer in older_writers(gang):
        pod = writer.pod
        if pod is None or pod.deleting_since is None or is_proved_ended(gang, pod):
            continue
        end = pod.deleting_since + gang.spec.trainer_grace_seconds
        if is_heard(gang, pod) and not gang.alarm.has_passed(end):
            found.add(0 if gang.spec.shared_directory else writer.rank)
    return frozenset(found)


def shared_pins(
    pinned: dict[int, frozenset[str]], *, ranks: Sequence[int]
) -> dict[int, frozenset[str]]:
    """In a directory that all share, what rank 0's sidecar has pinned is at hand for all."""
    return {rank: pinned.get(0, frozenset()) for rank in ranks}
