"""A pod's last report, as the kubelet carries it in a termination message. Pure.

Where no report can be had, a sidecar lets the trainer's container end with what it would have
told. It is a report like any other: stamped with job, pod, attempt and sequence.
"""

from __future__ import annotations

from pydantic import ValidationError
from rtj_api import contract, wire

from rtj_operator.core.observed import PodView


def last_words_of(pod: PodView) -> wire.Report | None:
    """What the pod's trainer container said at its newest end, if that was this pod's report."""
    container = pod.trainer
    if container is None:
        return None
    end = container.ended or container.last_end
    text = end.message if end is not None else None
    if not text or not text.startswith("{"):
        return None
    try:
        report = wire.Report.model_validate_json(text)
    except ValidationError:
        return None  # the trainer wrote it, or it was cut: the exit code still counts
    return report if report.pod_uid == pod.uid else None


def left_when_done(pod: PodView, *, attempt: int) -> bool:
    """Its container ended with 0 and the word that this attempt is done on all ranks. The pod's own
    phase follows a moment later."""
    end = pod.trainer.ended if pod.trainer is not None else None
    words = last_words_of(pod)
    if end is None or end.exit_code != 0 or words is None or words.attempt != attempt:
        return False
    return words.phase == wire.SidecarPhase.DRAINED


def is_released(pod: PodView) -> bool:
    """The pod ended well: by the operator's own word, or because its gang was done and drained."""
    end = pod.trainer.ended if pod.trainer is not None else None
    if pod.phase != "Succeeded" or end is None or end.exit_code != 0:
        return False
    words = last_words_of(pod)
    is_drained = words is not None and words.phase == wire.SidecarPhase.DRAINED
    return end.message == contract.MESSAGE_RELEASED or is_drained
