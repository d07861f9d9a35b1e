"""PyTorchJob and plain Job -> spec, field by field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtj_cli.converting.pods import template_of
from rtj_cli.converting.taking import Taking

_PODS = "pods end with the job; the saves stay in the store"


def pytorch_job(spec: Taking) -> dict[str, Any]:
    """kubeflow.org/v1. The Master is rank 0, the Workers come after it."""
    groups = spec.below("pytorchReplicaSpecs")
    told: dict[str, Taking] = {}
    for name in groups.data:
        if name.lower() in ("master", "worker"):
            told[name.lower()] = groups.below(name)
    groups.rest()
    counts = {name: int(group.take("replicas", 1)) for name, group in told.items()}
    templates: dict[str, Mapping[str, Any]] = {}
    for name, group in told.items():
        templates[name] = group.take("template", {})
        group.drop("restartPolicy", "recovery.maxRestarts and the causes decide")
        group.rest()
    first = next((name for name in ("master", "worker") if name in templates), None)
    place = groups.path
    if len(templates) == 2 and templates["master"] != templates["worker"]:
        spec.notes.questions.append(
            "may all ranks run the Master's template? The Workers' is another, and ranks here are "
            "alike: look at what differs"
        )
        spec.notes.dropped.append(f"{place}.Worker.template: where it differs from the Master's")
    template = template_of(
        templates[first] if first else {},
        notes=spec.notes,
        path=f"{place}.{(first or 'master').capitalize()}.template",
    )
    found: dict[str, Any] = {
        "replicas": max(1, sum(counts.values())),
        "framework": "pytorch",
        "template": template,
    }
    processes = spec.take("nprocPerNode")
    if processes is not None and str(processes).isdigit():
        found["procsPerReplica"] = int(processes)
    elif processes is not None:
        spec.notes.dropped.append(
            f"spec.nprocPerNode: {processes}: without procsPerReplica it is the pod's GPU limit"
        )
    spec.drop("elasticPolicy", "write spec.elastic where fewer pods may go on: see docs/elastic.md")
    found |= _run_policy(spec.below("runPolicy"))
    spec.rest()
    return found


def _run_policy(policy: Taking) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("activeDeadlineSeconds", "ttlSecondsAfterFinished", "suspend"):
        value = policy.take(key)
        if value is not None:
            found[key] = value
    limit = policy.take("backoffLimit")
    if limit is not None:
        found["recovery"] = {"maxRestarts": int(limit)}
        policy.notes.carried.append(
            f"{policy.path}.backoffLimit is recovery.maxRestarts: each durable save refills it"
        )
    policy.drop("cleanPodPolicy", _PODS)
    policy.drop("managedBy", "this operator is to look after the job")
    scheduling = policy.below("schedulingPolicy")
    scheduling.drop("minAvailable", "the gang is whole or does not run")
    queue = scheduling.take("queue")
    if queue is not None:
        found["scheduling"] = {"gang": "volcano", "queue": queue}
        policy.notes.questions.append("is Volcano the scheduler of that queue? See docs/queues.md")
    priority = scheduling.take("priorityClass")
    if priority is not None and queue is not None:
        found["scheduling"]["priorityClass"] = priority
    elif priority is not None:
        policy.notes.dropped.append(
            f"{scheduling.path}.priorityClass: {priority}: set scheduling.gang for it, or "
            "template.spec.priorityClassName"
        )
    scheduling.rest()
    policy.rest()
    return found


def plain_job(spec: Taking) -> dict[str, Any]:
    """batch/v1."""
    at_once = int(spec.take("parallelism", 1))
    completions = spec.take("completions")
    if completions is not None and int(completions) != at_once:
        spec.notes.dropped.append(
            f"spec.completions: {completions}: ranks run together; the job is complete when all "
            "have ended with 0"
        )
    template = template_of(spec.take("template", {}), notes=spec.notes, path="spec.template")
    found: dict[str, Any] = {
        "replicas": max(1, at_once),
        "framework": "pytorch" if at_once > 1 else "none",
        "template": template,
    }
    if spec.take("completionMode") == "Indexed":
        spec.notes.carried.append(
            "spec.completionMode Indexed: RTJ_RANK stands for JOB_COMPLETION_INDEX"
        )
    for key in ("activeDeadlineSeconds", "ttlSecondsAfterFinished", "suspend"):
        value = spec.take(key)
        if value is not None:
            found[key] = value
    limit = spec.take("backoffLimit")
    if limit is not None:
        found["recovery"] = {"maxRestarts": int(limit)}
        spec.notes.carried.append(
            "spec.backoffLimit is recovery.maxRestarts: each durable save refills it"
        )
    spec.drop("podFailurePolicy", "write recovery.failureRules for exit codes of your own")
    spec.drop("backoffLimitPerIndex", "a rank's fault restarts the gang")
    spec.drop("maxFailedIndexes", "a rank's fault restarts the gang")
    spec.drop("successPolicy", "success.ranks: Zero where rank 0 alone decides")
    spec.drop("managedBy", "this operator is to look after the job")
    spec.drop("podReplacementPolicy", "a rank's pod is replaced when its writer has ended")
    spec.drop("selector", "pods are found by their owner")
    spec.drop("manualSelector", "pods are found by their owner")
    spec.rest()
    return found
