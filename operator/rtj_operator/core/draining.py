"""What a pod that is being ended may still save and ship, and how long that is waited for.

A trainer that traps SIGTERM saves in its grace, and its sidecar ships that save until the pod's
deadline. To choose before would throw it away; to wait longer than its deadline would be to wait
for nothing. Pure.
"""

from __future__ import annotations

from rtj_api.wire import TrainerState

from rtj_operator.core.gang import Gang
from rtj_operator.core.nodes import is_heard, judge_node
from rtj_operator.core.observed import PodView


def _may_still_save_until(gang: Gang, pod: PodView) -> float | None:
    """The end of this ending pod's drain, while something may come of it; None: nothing will."""
    report = gang.observed.report_of(pod)
    if pod.is_terminal or pod.deleting_since is None:
        return None
    grace_ends = pod.deleting_since + gang.spec.trainer_grace_seconds
    deadline = pod.deletion_deadline
    end = deadline if deadline is not None else grace_ends + gang.spec.drain_seconds
    if gang.through_store and not is_heard(gang, pod):
        # Its trainer's container lives until its sidecar has drained.
        runs = pod.trainer is not None and pod.trainer.running
        return end if runs and judge_node(gang, pod) is None else None
    if report is None or not is_heard(gang, pod):
        return None
    if report.checkpoint.pending_saves > 0:
        return end
    trainer = report.trainer
    if trainer.state == TrainerState.RUNNING:
        return min(end, grace_ends)
    # Just ended: its sidecar is looking for what it saved last.
    return min(end, grace_ends) if report.settling else None


def draining_until(gang: Gang) -> float | None:
    """While an ending older pod may still ship a save, the moment at which it is not waited for
    any more; None when nothing is awaited."""
    ends = [
        end
        for pod in gang.surplus
        if (end := _may_still_save_until(gang, pod)) is not None and not gang.alarm.has_passed(end)
    ]
    return max(ends, default=None)
