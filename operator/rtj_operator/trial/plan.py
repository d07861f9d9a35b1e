"""What the trial makes, and what it says of what it sees. Pure: no clock, no network."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rtj_api import contract

from rtj_operator.trial import trainer

Raw = dict[str, Any]

MOUNT = "/trial"
CHECKPOINTS = f"{MOUNT}/checkpoints"
OWN_STORE = f"{MOUNT}/store"
USER = 65532
ENDS = ("Succeeded", "Failed", "Held")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`store`: spec.checkpoint.store of the job; None: a directory on its pod's own disk.
    `pod`: laid over the spec of its pod, for tolerations and the like."""

    namespace: str
    name: str
    image: str
    seconds: float
    store: Mapping[str, Any] | None
    pod: Mapping[str, Any]
    owner: Mapping[str, Any] | None
    run: str


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Raises KeyError, ValueError."""
    namespace = environment["RTJ_TRIAL_NAMESPACE"]
    pod, uid = environment["POD_NAME"], environment["POD_UID"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    return Settings(
        namespace=namespace,
        name=environment["RTJ_TRIAL_NAME"],
        image=environment["RTJ_TRIAL_IMAGE"],
        seconds=float(environment["RTJ_TRIAL_SECONDS"]),
        store=json.loads(environment.get("RTJ_TRIAL_STORE") or "null") or None,
        pod=json.loads(environment.get("RTJ_TRIAL_POD") or "{}"),
        # With the test's pod the job goes, however that ends. An owner is of the same namespace.
        owner=owner if environment["POD_NAMESPACE"] == namespace else None,
        run=f"helm-test/{uid}",
    )


def desired_job(settings: Settings) -> Raw:
    """One pod in the sidecar's own image, as small and as restricted as a pod can be."""
    words = ["python3", "-c", inspect.getsource(trainer), "--out", CHECKPOINTS]
    words += [] if settings.store else ["--store", OWN_STORE]
    trained = {
        "name": contract.CONTAINER_TRAINER,
        "image": settings.image,
        "command": words,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "trial", "mountPath": MOUNT}],
    }
    pod = {
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [trained],
        "volumes": [{"name": "trial", "emptyDir": {"sizeLimit": "64Mi"}}],
        **settings.pod,
    }
    meta: Raw = {"namespace": settings.namespace, "name": settings.name}
    if settings.owner:
        meta["ownerReferences"] = [dict(settings.owner)]
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": meta,
        "spec": {
            "replicas": 1,
            "framework": "none",
            "checkpoint": {
                "path": CHECKPOINTS,
                "include": ["state_*.json"],
                "store": dict(settings.store or {"url": f"file://{OWN_STORE}"}),
                "runID": settings.run,
                "resumeArgs": ["--resume", f"$({contract.ENV_RESUME_CHECKPOINT})"],
            },
            "recovery": {"maxRestarts": 1, "backoff": {"initialSeconds": 0.1, "maxSeconds": 1}},
            "sidecar": {
                "drainSeconds": 20,
                "resources": {
                    "requests": {"cpu": "50m", "memory": "64Mi"},
                    "limits": {"memory": "512Mi"},
                },
            },
            "template": {"spec": pod},
        },
    }


def is_due(status: Mapping[str, Any]) -> bool:
    """The first save is durable, and nothing has been killed yet."""
    durable = (status.get("checkpoint") or {}).get("lastDurableStep")
    return durable == 1 and status.get("attempt") == 1


def is_over(status: Mapping[str, Any]) -> bool:
    """Nothing more comes of it by itself: it ended, waits for a person, or its spec is refused."""
    refused = any(
        each["type"] == "Accepted" and each["status"] == "False"
        for each in status.get("conditions") or ()
    )
    return refused or status.get("phase") in ENDS


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """What can be seen in the job's status by now, in the order in which it comes to be. A later
    status begins with the lines of the earlier one, but for the phases that it passed by."""
    attempt = status.get("attempt") or 0
    durable = (status.get("checkpoint") or {}).get("lastDurableStep") or 0
    if attempt:
        yield "the operator has taken the job"
    if status.get("starts"):
        yield "attempt 1 trains, from step 0"
    if durable >= 1:
        yield "step 1 is saved, and durable"
    if attempt > 1:
        current = status["current"]
        yield (
            f"the trainer was killed, and the operator has seen it: {current['cause']}, "
            f"so {current['kind']}"
        )
    resume = status.get("resume") or {}
    if resume.get("attempt", 0) > 1:
        yield f"attempt {resume['attempt']} resumes from step {resume.get('step', 0)}"
    if durable >= 2:
        yield "step 2 is saved, and durable"
    if status.get("phase") in ENDS:
        yield f"the job is {status['phase']}"


def fault(status: Mapping[str, Any]) -> str | None:
    """What the end of the job contradicts; None: it went on where it was, as it should."""
    seen = {
        "phase": status.get("phase"),
        "starts": status.get("starts"),
        "restarts": status.get("restarts"),
        "resumed from step": (status.get("resume") or {}).get("step"),
        "last durable step": (status.get("checkpoint") or {}).get("lastDurableStep"),
    }
    expected = {
        "phase": "Succeeded",
        "starts": 2,
        "restarts": 1,
        "resumed from step": 1,
        "last durable step": 2,
    }
    wrong = [f"{k} {seen[k]}, not {expected[k]}" for k in expected if seen[k] != expected[k]]
    return "; ".join(wrong) or None


def words(status: Mapping[str, Any]) -> Iterator[str]:
    """What the job itself says of why it is where it is."""
    if hold := status.get("hold"):
        yield f"{hold['reason']}: {hold['message']}"
    for condition in status.get("conditions") or ():
        yield f"{condition['type']}={condition['status']} {condition['reason']}: " + (
            condition.get("message") or ""
        )
