"""JobSet and TrainJob -> spec, field by field. Pure."""

from __future__ import annotations

from typing import Any

from rtj_cli.converting.kinds import plain_job
from rtj_cli.converting.pods import template_of
from rtj_cli.converting.taking import Taking

_TRAINERS = ("trainer", "node", "worker", "workers", "master")


def job_set(spec: Taking) -> dict[str, Any]:
    """jobset.x-k8s.io/v1alpha2. One of its replicated jobs becomes the gang."""
    groups = [each for each in spec.take("replicatedJobs", []) if isinstance(each, dict)]
    names = [str(each.get("name")) for each in groups]
    index = next((names.index(name) for name in _TRAINERS if name in names), 0)
    found: dict[str, Any] = {"replicas": 1, "template": {"spec": {"containers": []}}}
    for other, name in enumerate(names):
        if other != index:
            spec.notes.dropped.append(
                f"spec.replicatedJobs[{name}]: a job has one kind of rank: keep it as a Job or "
                "Deployment of its own"
            )
    if groups:
        group = Taking(groups[index], f"spec.replicatedJobs[{names[index]}]", spec.notes)
        if len(groups) > 1:
            spec.notes.questions.append(f"does the replicated job {names[index]} train?")
        many = int(group.take("replicas", 1))
        group.take("name")
        template = group.below("template")
        template.drop("metadata", "labels of the Job; those of its pods are kept")
        inner = template.below("spec")
        inner.path = f"{group.path}.template.spec"
        found = plain_job(inner)
        found["replicas"] *= many
        found["framework"] = "pytorch" if found["replicas"] > 1 else found["framework"]
        template.rest()
        group.rest()
    if spec.take("suspend"):
        found["suspend"] = True
    value = spec.take("ttlSecondsAfterFinished")
    if value is not None:
        found["ttlSecondsAfterFinished"] = value
    policy = spec.below("failurePolicy")
    limit = policy.take("maxRestarts")
    if limit is not None:
        found["recovery"] = {"maxRestarts": int(limit)}
        spec.notes.carried.append("spec.failurePolicy.maxRestarts is recovery.maxRestarts")
    policy.drop("rules", "write recovery.failureRules for exit codes of your own")
    policy.drop("restartStrategy", "restarts are in place where they can be")
    policy.rest()
    spec.drop("network", "ranks find each other by rank 0's address")
    spec.drop("successPolicy", "success.ranks: Zero where rank 0 alone decides")
    spec.drop("startupPolicy", "all ranks start together")
    spec.drop("managedBy", "this operator is to look after the job")
    spec.drop("coordinator", "rank 0 is the coordinator")
    spec.rest()
    return found


def train_job(spec: Taking) -> dict[str, Any]:
    """trainer.kubeflow.org/v1alpha1. Its runtime is not in the manifest: only its name is known."""
    runtime = spec.below("runtimeRef")
    named = str(runtime.take("name", ""))
    runtime.take("kind")
    runtime.take("apiGroup")
    runtime.rest()
    trainer = spec.below("trainer")
    container: dict[str, Any] = {"name": "trainer"}
    image = trainer.take("image")
    container["image"] = image or "replace-with-the-image-of-the-runtime"
    for key, theirs in (("command", "command"), ("args", "args"), ("env", "env")):
        value = trainer.take(theirs)
        if value:
            container[key] = value
    resources = trainer.take("resourcesPerNode")
    if resources:
        container["resources"] = resources
    if named:
        spec.notes.questions.append(
            f"what does the runtime {named} add? Its pod template is not in this manifest "
            f"(kubectl get clustertrainingruntime {named} -o yaml): image, volumes, mounts and "
            "environment of its own must be written into spec.template"
        )
    template = template_of(
        {"spec": {"containers": [container]}}, notes=spec.notes, path="spec.trainer"
    )
    found: dict[str, Any] = {
        "replicas": max(1, int(trainer.take("numNodes", 1))),
        "framework": "jax" if "jax" in named else "pytorch",
        "template": template,
    }
    processes = trainer.take("numProcPerNode")
    if str(processes).isdigit():
        found["procsPerReplica"] = int(processes)
    elif processes is not None:
        spec.notes.dropped.append(
            f"spec.trainer.numProcPerNode: {processes}: it is the pod's GPU limit"
        )
    trainer.rest()
    if spec.take("suspend"):
        found["suspend"] = True
    metadata = {key: spec.take(key) for key in ("labels", "annotations")}
    if any(metadata.values()):
        found["template"]["metadata"] = {key: value for key, value in metadata.items() if value}
    spec.drop("initializer", "download data and model in an init container, or before the job")
    for key in ("podTemplateOverrides", "podSpecOverrides", "runtimePatches"):
        spec.drop(key, "write into spec.template what it overrides")
    spec.drop("managedBy", "this operator is to look after the job")
    spec.rest()
    return found
