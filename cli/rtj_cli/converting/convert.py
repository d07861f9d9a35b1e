"""A manifest of another operator -> one of ours, and the text that a person goes on from. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from rtj_api import contract

from rtj_cli.converting.kinds import plain_job, pytorch_job
from rtj_cli.converting.pods import DIRECTORY, checkpoint_path
from rtj_cli.converting.sets import job_set, train_job
from rtj_cli.converting.taking import Notes, Taking

BUCKET = "s3://replace-with-your-bucket/runs"
READERS: Mapping[str, tuple[str, Callable[[Taking], dict[str, Any]]]] = {
    "PyTorchJob": ("kubeflow.org/", pytorch_job),
    "TrainJob": ("trainer.kubeflow.org/", train_job),
    "JobSet": ("jobset.x-k8s.io/", job_set),
    "Job": ("batch/", plain_job),
}
_QUEUE = "kueue.x-k8s.io/queue-name"
_PRIORITY = "kueue.x-k8s.io/priority-class"
_ORDER = (
    "replicas",
    "framework",
    "procsPerReplica",
    "suspend",
    "checkpoint",
    "recovery",
    "scheduling",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "template",
)


@dataclass(frozen=True, slots=True)
class Converted:
    kind: str
    manifest: dict[str, Any]
    notes: Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the manifest cannot say: None where the person did not say it either."""

    path: str | None = None
    store: str | None = None
    credentials: str | None = None


def convert(data: Mapping[str, Any], *, answers: Answers) -> Converted | None:
    """None for a kind that is none of the four."""
    kind = str(data.get("kind"))
    group, reader = READERS.get(kind, ("", None))
    if reader is None or not str(data.get("apiVersion", "")).startswith(group):
        return None
    notes = Notes()
    whole = Taking(data, "", notes)
    whole.take("apiVersion")
    whole.take("kind")
    whole.taken.add("status")
    meta = Taking(whole.take("metadata", {}), "metadata", notes)
    spec = reader(whole.below("spec"))
    metadata = _metadata(meta, spec)
    spec["checkpoint"] = _checkpoint(spec, answers=answers, notes=notes)
    whole.rest()
    notes.questions.append(
        "how does the trainer learn what to resume from? Append words by checkpoint.resumeArgs, "
        "such as [--resume, $(RTJ_RESUME_CHECKPOINT)], or let it read RTJ_RESUME_CHECKPOINT; one "
        "that looks for its own newest checkpoint below checkpoint.path needs nothing"
    )
    manifest = {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": metadata,
        "spec": {key: spec[key] for key in _ORDER if key in spec},
    }
    return Converted(kind, manifest, notes)


def _metadata(meta: Taking, spec: dict[str, Any]) -> dict[str, Any]:
    name = str(meta.take("name") or meta.take("generateName", "job").rstrip("-"))
    plain = name.replace(".", "-")[:40].rstrip("-")
    if plain != name:
        meta.notes.carried.append(f"metadata.name {name} is {plain}: it begins a pod's hostname")
    found: dict[str, Any] = {"name": plain}
    if meta.take("namespace"):
        found["namespace"] = meta.data["namespace"]
    labels = dict(meta.take("labels", {}))
    queue, priority = labels.pop(_QUEUE, None), labels.pop(_PRIORITY, None)
    if queue is not None:
        spec["scheduling"] = {"gang": "kueue", "queue": queue}
        meta.notes.carried.append(f"label {_QUEUE} is scheduling.queue")
        if priority is not None:
            spec["scheduling"]["priorityClass"] = priority
    if labels:
        found["labels"] = labels
    notes = dict(meta.take("annotations", {}))
    notes.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    if notes:
        found["annotations"] = notes
    for key in ("finalizers", "ownerReferences"):
        meta.drop(key, "is of the other object")
    return found  # what else stands there is the API server's


def _checkpoint(spec: Mapping[str, Any], *, answers: Answers, notes: Notes) -> dict[str, Any]:
    guess = checkpoint_path(spec["template"])
    path = answers.path or guess or DIRECTORY
    if answers.path is None:
        notes.questions.append(
            f"is {guess} where the trainer writes its checkpoints? It was found in its words, "
            "environment or mounts"
            if guess is not None
            else "where does the trainer write its checkpoints? Set checkpoint.path to that "
            "directory in the container (--path)"
        )
    store: dict[str, Any] = {"url": answers.store or BUCKET}
    if answers.store is None:
        notes.questions.append(
            "where are checkpoints kept? Set checkpoint.store.url to a bucket or prefix (--store); "
            "without a store checkpoint.path must lie on a claim that outlives every pod"
        )
    if answers.credentials is not None:
        store["credentialsSecret"] = answers.credentials
    elif not store["url"].startswith("file://"):
        notes.questions.append(
            "which Secret holds the store's credentials? Set checkpoint.store.credentialsSecret "
            "(--credentials), or give the pods an identity of the cloud"
        )
    return {"path": path, "store": store}


def text_of(converted: Converted) -> str:
    """The manifest with its notes as comments, ready to be edited and applied."""
    name = converted.manifest["metadata"]["name"]
    notes = converted.notes
    lines = [f"# {name}: made from a {converted.kind} by `rtj import-job`."]
    for title, told in (
        (
            "To answer before it is applied (`rtj lint` says what is open):",
            converted.notes.questions,
        ),
        ("Not carried over:", notes.dropped),
        ("Carried over as something else:", notes.carried),
    ):
        if told:
            lines += ["#", f"# {title}", *(f"#   - {each}" for each in told)]
    body = yaml.safe_dump(converted.manifest, sort_keys=False, allow_unicode=True, width=100)
    return "\n".join(lines) + "\n" + "".join(_marked(body))


def _marked(body: str) -> Iterator[str]:
    for line in body.splitlines(keepends=True):
        is_open = re.search(r"replace-with-", line) is not None
        yield line.rstrip("\n") + "  # to answer, see above\n" if is_open else line
