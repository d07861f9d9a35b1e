"""Every rule of the API on a real API server: one job that it takes, and what it says to others.

The words asserted here are those that a person reads under `kubectl apply`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from kit.crd_cases import CASES
from kit.crd_jobs import CLAIM, Case, container, job, named
from kit.kube import Kube, KubectlError
from kit.manifests import overlaid
from rtj_api import contract
from rtj_api.validations import ALL_RULES
from rtj_cli.lint.linting import job_faults

Refusal = Callable[[dict[str, Any]], str]


CASES["managed-by-form"] = Case(
    "not a controller's name: write <domain>/<name>",
    takes=[
        job(managedBy="kueue.x-k8s.io/multikueue"),
        job(managedBy="resumable-training.dev/operator"),
    ],
    refuses=[job(managedBy="operator"), job(managedBy="a/b/c"), job(managedBy="Kueue.io/x y")],
)

QUEUED = {"gang": "kueue", "queue": "team-a"}
TOPOLOGY = {"networkTopology": {"mode": "hard"}}
CASES["kueue-queue"] = Case(
    "set scheduling.queue to a LocalQueue",
    takes=[job(scheduling=QUEUED), job(scheduling={"gang": "volcano"}), job(scheduling={})],
    refuses=[job(scheduling={"gang": "kueue"})],
)
CASES["queue-gang"] = Case(
    "set scheduling.gang to one of them",
    takes=[job(scheduling={"gang": "volcano", "queue": "team-a"})],
    refuses=[job(scheduling={"queue": "team-a"}), job(scheduling={**QUEUED, "gang": "native"})],
)
CASES["priority-class-gang"] = Case(
    "set template.spec.priorityClassName",
    takes=[job(scheduling={**QUEUED, "priorityClass": "high"})],
    refuses=[job(scheduling={"priorityClass": "high"})],
)
CASES["pod-group-gang"] = Case(
    "set gang to volcano, scheduler-plugins or native",
    takes=[
        job(scheduling={"gang": gang, "podGroup": TOPOLOGY})
        for gang in ("volcano", "scheduler-plugins", "native")
    ],
    refuses=[job(scheduling={**QUEUED, "podGroup": TOPOLOGY})],
)

CASES["spares-gang"] = Case(
    "set recovery.spares to 0",
    takes=[
        job(recovery={"spares": 1}),
        job(scheduling={"gang": "none"}, recovery={"spares": 1}),
        job(scheduling=QUEUED, recovery={"spares": 0}),
        job(scheduling={"gang": "volcano"}),
    ],
    refuses=[
        job(scheduling=QUEUED, recovery={"spares": 1}),
        job(scheduling={"gang": "volcano"}, recovery={"spares": 1}),
        job(scheduling={"gang": "native"}, recovery={"spares": 1}),
    ],
)

RUN = {"runID": "run-1", "store": {"url": "file:///mnt/store"}}
CHANGES = {
    "replicas-immutable": ({"replicas": 3}, "replicas cannot be changed"),
    "store-url-immutable": (
        {"checkpoint": {"store": {"url": "file:///mnt/other"}}},
        "store.url cannot be changed",
    ),
    "checkpoint-path-immutable": (
        {"checkpoint": {"path": "/elsewhere"}},
        "checkpoint.path cannot be changed",
    ),
    "run-id-immutable": ({"checkpoint": {"runID": "run-2"}}, "runID cannot be changed"),
    "managed-by-immutable": ({"managedBy": "kueue.x-k8s.io/multikueue"}, "managedBy cannot be"),
}
TAKEN_AWAY = {
    "store-stays": (
        {"checkpoint": {"store": None}, "template": {"spec": {"volumes": [CLAIM]}}},
        "checkpoint.store cannot be added or removed",
    ),
}
ALLOWED_CHANGES = {
    "suspend": {"suspend": False},
    "budget": {"recovery": {"maxRestarts": 99}},
    "resume arguments": {"checkpoint": {"resumeArgs": ["--go-on"]}},
    "template": {"template": {"spec": {"containers": [container(image="trainer:2")]}}},
    "framework": {"framework": "none"},
    "success": {"success": {"ranks": "Zero", "targetStep": 1000}},
    "deadlines": {"activeDeadlineSeconds": 60, "startDeadlineSeconds": 60},
    "queue": {"scheduling": {"gang": "kueue", "queue": "team-b"}},
    "time to live": {"ttlSecondsAfterFinished": 0},
    "interval": {"checkpoint": {"interval": {"seconds": 60}}},
    "beginning": {"checkpoint": {"resumeFrom": "f3-n2-s400"}},
    "take-over": {"checkpoint": {"takeOver": "8a1b-22"}},
    "existing run": {"checkpoint": {"onExistingRun": "Fresh"}},
}


def test_every_rule_has_its_cases() -> None:
    assert sorted([*CASES, *CHANGES, *TAKEN_AWAY]) == sorted(rule.name for rule in ALL_RULES)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_takes_what_is_right(rule: str, refusal: Refusal) -> None:
    for manifest in CASES[rule].takes:
        assert refusal(manifest) == ""


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_refuses_what_is_wrong_and_says_what_to_do(rule: str, refusal: Refusal) -> None:
    for manifest in CASES[rule].refuses:
        said = refusal(manifest)
        assert CASES[rule].says in said, (manifest, said)


@pytest.mark.parametrize("rule", CASES)
def test_lint_says_offline_what_the_server_says(rule: str) -> None:
    for manifest in CASES[rule].takes:
        assert job_faults(manifest) == []
    for manifest in CASES[rule].refuses:
        told = [fault.message for fault in job_faults(manifest)]
        assert any(CASES[rule].says in message for message in told), (manifest, told)


SHAPES = {
    "a number for a text": job(framework=3),
    "a text for a number": job(replicas="two"),
    "a list for an object": job(checkpoint=[]),
    "an unknown field": job(replicaz=3),
    "an unknown word": job(framework="tensorflow"),
    "too little": job(replicas=0),
    "a missing field": job(checkpoint={"path": None}),
    "a bad name": named("Gpt_1"),
}


@pytest.mark.parametrize("what", SHAPES)
def test_lint_and_the_server_refuse_the_same_shapes(what: str, refusal: Refusal) -> None:
    assert refusal(SHAPES[what]) != ""
    assert job_faults(SHAPES[what]) != []


@pytest.fixture(scope="module")
def stored(space: Kube) -> dict[str, Any]:
    """A job that is really there; suspended, so that no operator makes pods of it."""
    manifest = named("stored", replicas=2, suspend=True, checkpoint=RUN)
    space.apply(manifest)
    return manifest


@pytest.mark.parametrize("rule", CHANGES)
def test_what_a_run_is_bound_to_cannot_be_changed(
    rule: str, stored: dict[str, Any], refusal_of_change: Refusal
) -> None:
    change, says = CHANGES[rule]
    said = refusal_of_change(overlaid(stored, {"spec": change}))
    assert says in said
    assert "it goes on from the newest save" in said


def test_a_run_id_cannot_be_taken_away(stored: dict[str, Any], space: Kube) -> None:
    patch = '{"spec":{"checkpoint":{"runID":null}}}'
    with pytest.raises(KubectlError, match="runID cannot be changed"):
        space.run("patch", contract.PLURAL, "stored", "--type=merge", "-p", patch)


@pytest.mark.parametrize("rule", TAKEN_AWAY)
def test_what_a_run_is_bound_to_cannot_be_taken_away(
    rule: str, stored: dict[str, Any], space: Kube
) -> None:
    change, says = TAKEN_AWAY[rule]
    patch = json.dumps({"spec": change})
    with pytest.raises(KubectlError, match=says):
        space.run("patch", contract.PLURAL, "stored", "--type=merge", "-p", patch)


@pytest.mark.parametrize("what", ALLOWED_CHANGES)
def test_the_rest_can_be_changed(
    what: str, stored: dict[str, Any], refusal_of_change: Refusal
) -> None:
    assert refusal_of_change(overlaid(stored, {"spec": deepcopy(ALLOWED_CHANGES[what])})) == ""
