"""Jobs of which one field is laid over a good one, for the rules of the CRD.

Must never make a job that breaks a rule which the caller did not mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rtj_api import contract

from kit.manifests import overlaid


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "trainer", "image": "trainer:1", "command": ["python", "train.py"]} | fields


def job(**spec: Any) -> dict[str, Any]:
    """A good job with `spec` laid over its own."""
    good = {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"name": "gpt"},
        "spec": {
            "checkpoint": {"path": "/checkpoints", "store": {"url": "s3://bucket/prefix"}},
            "template": {"spec": {"containers": [container()]}},
        },
    }
    return overlaid(good, {"spec": spec})


def named(name: str, **spec: Any) -> dict[str, Any]:
    return overlaid(job(**spec), {"metadata": {"name": name}})


def checkpoint(**fields: Any) -> dict[str, Any]:
    return job(checkpoint=fields)


def store(**fields: Any) -> dict[str, Any]:
    return job(checkpoint={"store": fields})


def pod(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    found = {"containers": list(containers)} if containers else {}
    return job(template={"spec": found | fields})


CLAIM = {"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}


def bare(**pod_fields: Any) -> dict[str, Any]:
    """A job without a store."""
    return overlaid(pod(**pod_fields), {"spec": {"checkpoint": {"store": None}}})


def probed(command: list[str]) -> dict[str, Any]:
    """A job with this probe."""
    return checkpoint(validation={"probe": {"command": command}})


def needing(*keys: str) -> dict[str, Any]:
    """A job whose full saves must hold these keys."""
    return checkpoint(validation={"requiredKeys": list(keys)})


def resumed(*command: str, args: list[str] | None = None) -> dict[str, Any]:
    """A job with resumeArgs and this command."""
    words = container(command=list(command)) | ({"args": args} if args else {})
    return overlaid(pod(words), {"spec": {"checkpoint": {"resumeArgs": ["--resume", "x"]}}})


@dataclass(frozen=True)
class Case:
    """Jobs that one rule takes and refuses, and words of what it then says."""

    says: str
    takes: list[dict[str, Any]]
    refuses: list[dict[str, Any]]


def ruled(*rules: dict[str, Any]) -> dict[str, Any]:
    return job(recovery={"failureRules": list(rules)})


def elastic(*, replicas: int = 4, least: int = 2, **fields: Any) -> dict[str, Any]:
    """A job of that size with spec.elastic."""
    return job(replicas=replicas, elastic={"minReplicas": least} | fields)


def patient(seconds: int, *, timeout: int | None = None) -> dict[str, Any]:
    """An elastic job that waits so long, with that placement time-out."""
    limit = {} if timeout is None else {"placementTimeoutSeconds": timeout}
    return overlaid(elastic(scaleDownAfterSeconds=seconds), {"spec": {"recovery": limit}})


def queued(gang: str, **fields: Any) -> dict[str, Any]:
    return job(scheduling={"gang": gang, **({"queue": "q"} if gang == "kueue" else {})}, **fields)
