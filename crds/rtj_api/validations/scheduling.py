"""Rules on `scheduling`. Must never hold a rule without a remedy in its message."""

from __future__ import annotations

from typing import Final

from rtj_api.validations.rule import Rule

_GANG = "(has(self.gang) ? self.gang : 'none')"

SCHEDULING: Final = (
    Rule(
        "kueue-queue",
        f"{_GANG} != 'kueue' || has(self.queue)",
        "scheduling.gang is kueue and no queue is named: set scheduling.queue to a LocalQueue of "
        "this namespace (kubectl get localqueues)",
    ),
    Rule(
        "queue-gang",
        f"!has(self.queue) || {_GANG} in ['kueue', 'volcano']",
        "scheduling.queue is read by kueue and volcano only: set scheduling.gang to one of them, "
        "or remove the queue",
    ),
    Rule(
        "priority-class-gang",
        f"!has(self.priorityClass) || {_GANG} in ['kueue', 'volcano']",
        "scheduling.priorityClass is read by kueue and volcano only: for pods without them set "
        "template.spec.priorityClassName",
    ),
    Rule(
        "pod-group-gang",
        f"!has(self.podGroup) || {_GANG} in ['volcano', 'scheduler-plugins', 'native']",
        "scheduling.podGroup goes into a PodGroup, and this scheduling.gang has none: set gang to "
        "volcano, scheduler-plugins or native, or remove it",
    ),
)
