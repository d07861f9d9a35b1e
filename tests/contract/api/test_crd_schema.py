"""Bounds, defaults and what kubectl shows, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from kit.kube import Kube
from kit.manifests import overlaid
from kit.samples import full
from rtj_api import contract, crdgen
from rtj_api.status import Status
from rtj_api.v1alpha1 import JobSpec

Refusal = Callable[[dict[str, Any]], str]

GOOD = {
    "apiVersion": contract.API_VERSION,
    "kind": contract.KIND,
    "metadata": {"name": "gpt"},
    "spec": {
        "checkpoint": {"path": "/checkpoints", "store": {"url": "s3://bucket/prefix"}},
        "template": {
            "spec": {"containers": [{"name": "trainer", "image": "a:1", "command": ["python"]}]}
        },
    },
}
TWINS = [{"name": "trainer", "image": "a:1", "command": ["python"]}] * 2
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no pod": ({"replicas": 0}, "greater than or equal to 1"),
    "too many pods": ({"replicas": 10_001}, "less than or equal to 10000"),
    "framework": ({"framework": "theano"}, 'supported values: "pytorch", "jax", "none"'),
    "processes": ({"procsPerReplica": 0}, "greater than or equal to 1"),
    "layout": ({"checkpoint": {"layout": "zip"}}, 'supported values: "auto"'),
    "onNoValid": ({"checkpoint": {"onNoValid": "Pray"}}, '"Hold", "StartFromScratch"'),
    "onExistingRun": (
        {"checkpoint": {"onExistingRun": "Merge"}},
        'supported values: "Resume", "Hold", "Fresh"',
    ),
    "mirror": ({"checkpoint": {"local": {"mirror": "yes"}}}, '"auto", "always", "never"'),
    "keepLast": ({"checkpoint": {"retention": {"keepLast": 0}}}, "greater than or equal to 1"),
    "Secret's name": (
        {"checkpoint": {"store": {"credentialsSecret": "My Secret"}}},
        "credentialsSecret",
    ),
    "empty path": ({"checkpoint": {"path": ""}}, "spec.checkpoint.path"),
    "budget": ({"recovery": {"maxRestarts": -1}}, "greater than or equal to 0"),
    "back-off": ({"recovery": {"backoff": {"maxSeconds": -1}}}, "greater than or equal to 0"),
    "placement": ({"recovery": {"placementTimeoutSeconds": 1}}, "greater than or equal to 10"),
    "stop": (
        {"recovery": {"stop": {"by": "SIGKILL"}}},
        'supported values: "Nothing", "File", "SIGTERM", "SIGUSR1"',
    ),
    "spares": ({"recovery": {"spares": 65}}, "less than or equal to 64"),
    "suspend": (
        {"suspendPolicy": {"checkpointTimeoutSeconds": -1}},
        "greater than or equal to 0",
    ),
    "success": ({"success": {"ranks": "Most"}}, 'supported values: "All", "Zero"'),
    "target": ({"success": {"targetStep": 0}}, "greater than or equal to 1"),
    "deadline": ({"activeDeadlineSeconds": 0}, "greater than or equal to 1"),
    "deadline of the start": ({"startDeadlineSeconds": 2**31}, "less than or equal to 2147483647"),
    "time to live": ({"ttlSecondsAfterFinished": -1}, "greater than or equal to 0"),
    "part of a second": ({"ttlSecondsAfterFinished": 0.5}, "ttlSecondsAfterFinished"),
    "drain": ({"sidecar": {"drainSeconds": -1}}, "greater than or equal to 0"),
    "pull policy": ({"sidecar": {"imagePullPolicy": "Sometimes"}}, '"IfNotPresent"'),
    "quantity": (
        {"sidecar": {"resources": {"limits": {"memory": "much"}}}},
        "spec.sidecar.resources.limits.memory",
    ),
    "environment without a name": ({"sidecar": {"env": [{"value": "x"}]}}, "name"),
    "no url": ({"checkpoint": {"store": {"url": None}}}, "spec.checkpoint.store.url: Required"),
    "no path": ({"checkpoint": {"path": None}}, "spec.checkpoint.path: Required value"),
    "no template": ({"template": None}, "spec.template: Required value"),
    "no containers": (
        {"template": {"spec": {"containers": None}}},
        "spec.template.spec.containers: Required value",
    ),
    "empty containers": ({"template": {"spec": {"containers": []}}}, "at least 1 items"),
    "two of one name": ({"template": {"spec": {"containers": TWINS}}}, "Duplicate value"),
    "command as text": (
        {"template": {"spec": {"containers": [TWINS[0] | {"command": "python train.py"}]}}},
        "spec.template.spec.containers[0].command",
    ),
    "a field misspelt": ({"checkpoint": {"resumeArguments": []}}, "resumeArguments"),
}
TAKEN: dict[str, dict[str, Any]] = {
    "as small as can be": {},
    "bounds": {"replicas": 10_000, "procsPerReplica": 1024, "recovery": {"maxRestarts": 0}},
    "jax": {"framework": "jax", "checkpoint": {"local": {"mirror": "never"}}},
    "sidecar": {
        "sidecar": {
            "image": "sidecar:2",
            "imagePullPolicy": "Always",
            "resources": {"limits": {"cpu": 2, "memory": "1.5Gi"}, "requests": {"cpu": "500m"}},
            "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:1"}],
            "envFrom": [{"secretRef": {"name": "more"}}],
            "drainSeconds": 0,
        }
    },
    "a slow rank that is moved": {"recovery": {"straggler": {"onSlow": "Replace"}}},
    "a stop step by a signal": {"recovery": {"stop": {"by": "SIGUSR1"}}},
    "a field of a later Kubernetes": {"template": {"spec": {"fieldOfTheFuture": {"a": [1]}}}},
}


@pytest.mark.parametrize("what", REFUSED)
def test_out_of_bounds_is_refused_by_name(what: str, refusal: Refusal) -> None:
    change, says = REFUSED[what]
    assert says in refusal(overlaid(GOOD, {"spec": change}))


@pytest.mark.parametrize("what", TAKEN)
def test_within_bounds_is_taken(what: str, refusal: Refusal) -> None:
    assert refusal(overlaid(GOOD, {"spec": TAKEN[what]})) == ""


def test_the_server_fills_in_the_models_defaults(space: Kube) -> None:
    out = space.run(
        *("create", "--dry-run=server", "-o", "json", "-f", "-"), stdin=json.dumps(GOOD)
    )
    stored = json.loads(out)["spec"]
    assert stored["replicas"] == 1
    assert stored["recovery"] == {
        "maxRestarts": 10,
        "backoff": {"initialSeconds": 1, "maxSeconds": 300},
        "placementTimeoutSeconds": 600,
        "avoidNodes": "Preferred",
        "spares": 0,
        "hang": {"onHang": "Restart"},
        "straggler": {"onSlow": "Report"},
        "verifyResume": {"onDivergence": "RollBack", "onDrift": "Report"},
        "stop": {"by": "Nothing"},
    }
    assert stored["suspendPolicy"] == {"checkpointTimeoutSeconds": 60}
    assert JobSpec.model_validate(stored) == JobSpec.model_validate(GOOD["spec"])


@pytest.fixture(scope="module")
def shown(space: Kube) -> Kube:
    """A suspended job with a status, as the operator writes one."""
    space.apply(overlaid(GOOD, {"metadata": {"name": "shown"}, "spec": {"suspend": True}}))
    status = Status.model_validate(
        {
            "phase": "Running",
            "restarts": 3,
            "progress": {"step": 1234},
            "checkpoint": {
                "lastDurableTime": 1_700_000_000.25,
                "lastDurableStep": 1200,
                "resumeQuality": "Partial",
            },
            "conditions": [
                {
                    "type": "Running",
                    "status": "True",
                    "reason": "Training",
                    "lastTransitionTime": 1_700_000_000,
                }
            ],
        }
    ).dump()
    patch = json.dumps({"status": status})
    space.run(
        *("patch", contract.PLURAL, "shown", "--subresource=status", "--type=merge", "-p", patch)
    )
    return space


def test_get_shows_the_columns(shown: Kube) -> None:
    head, row = shown.run("get", contract.SHORT_NAME, "shown").splitlines()
    names = ["NAME", *(name.upper() for name, *_ in crdgen.COLUMNS)]
    assert head.split() == names
    values = dict(zip(names, row.split(), strict=True))
    assert values["PHASE"] == "Running"
    assert values["STEP"] == "1234"
    assert values["RESTARTS"] == "3"
    assert values["REASON"] == "Training"
    assert values["CHECKPOINT"].endswith("d")  # an age, not a date


def test_wide_shows_the_quality_of_the_last_resume(shown: Kube) -> None:
    head, row = shown.run("get", contract.SHORT_NAME, "shown", "-o", "wide").splitlines()
    names = [name.upper() for name, *_ in (*crdgen.COLUMNS, *crdgen.WIDE_COLUMNS)]
    assert head.split() == ["NAME", *names]
    assert dict(zip(head.split(), row.split(), strict=True))["RESUME"] == "Partial"


def test_it_is_listed_with_all(shown: Kube) -> None:
    assert f"{contract.SINGULAR}.{contract.GROUP}/shown" in shown.run("get", "all", "-o", "name")


def test_status_is_a_subresource(shown: Kube) -> None:
    """A person who edits the object cannot change what the operator remembers, by accident."""
    patch = json.dumps({"status": {"restarts": 99}})
    shown.run("patch", contract.PLURAL, "shown", "--type=merge", "-p", patch)
    assert shown.get(contract.PLURAL, "shown")["status"]["restarts"] == 3


def test_a_whole_status_is_kept_field_by_field(space: Kube) -> None:
    """Nothing that the operator remembers may be pruned by the schema."""
    wanted = Status.model_validate(full(Status)).dump()
    space.apply(overlaid(GOOD, {"metadata": {"name": "whole"}, "spec": {"suspend": True}}))
    space.run(
        *("patch", contract.PLURAL, "whole", "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": wanted})),
    )
    assert space.get(contract.PLURAL, "whole")["status"] == wanted


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("rtj", "goes on from its newest valid checkpoint"),
        ("rtj.spec.replicas", "rank 0 to replicas-1"),
        ("rtj.spec.checkpoint.resumeArgs", "only when it resumes"),
        ("rtj.spec.checkpoint.store.url", "s3://bucket/prefix"),
        ("rtj.spec.recovery.maxRestarts", "without durable progress"),
        ("rtj.status.attempts", "how it ended"),
    ],
)
def test_explain_tells_what_a_field_is_for(path: str, words: str, space: Kube) -> None:
    assert words in " ".join(space.run("explain", path).split())
