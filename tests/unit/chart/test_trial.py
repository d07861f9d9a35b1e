"""`helm test`: what it asks for is as little as it needs, and what it says is what it saw."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.chart import render
from kit.chart_objects import find
from rtj_operator.trial import trainer
from rtj_operator.trial.plan import (
    Settings,
    desired_job,
    fault,
    is_due,
    is_over,
    lines,
    settings_from,
    words,
)

NAME = "rto-resumable-training-operator-test"
STORE = {"url": "s3://bucket/trials", "credentialsSecret": "s3"}
ENVIRONMENT = {
    "POD_NAME": NAME,
    "POD_UID": "u-1",
    "POD_NAMESPACE": "rtj-system",
    "RTJ_TRIAL_NAMESPACE": "rtj-system",
    "RTJ_TRIAL_NAME": NAME,
    "RTJ_TRIAL_IMAGE": "sidecar:1",
    "RTJ_TRIAL_SECONDS": "60",
}


def hooks(**values: Any) -> list[dict[str, Any]]:
    settings = {f"test.{name}": value for name, value in values.items()}
    return [
        each
        for each in render(values=settings, with_test=True)
        if "helm.sh/hook" in each["metadata"].get("annotations", {})
    ]


def environment_of(objects: list[dict[str, Any]]) -> dict[str, str]:
    """As the pod's container gets it, with what its own metadata says."""
    [container] = find(objects, "Pod")["spec"]["containers"]
    own = {"POD_NAME": NAME, "POD_UID": "u-1", "POD_NAMESPACE": "rtj-system"}
    return {each["name"]: each.get("value", own.get(each["name"])) for each in container["env"]}


def rights(objects: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rules = find(objects, "Role")["rules"]
    return [
        (verb, resource, *rule.get("resourceNames", ()))
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def test_nothing_of_it_stays_but_the_pod_with_its_log() -> None:
    for each in hooks():
        notes = each["metadata"]["annotations"]
        assert notes["helm.sh/hook"] == "test"
        policy = notes["helm.sh/hook-delete-policy"]
        stays = policy == "before-hook-creation"
        assert stays == (each["kind"] == "Pod"), each["kind"]
        assert stays or policy == "before-hook-creation,hook-succeeded,hook-failed"
    assert not hooks(enabled=False)


def test_no_selector_of_the_operator_finds_it() -> None:
    selector = find(render(), "Deployment")["spec"]["selector"]["matchLabels"]
    for each in hooks():
        labels = each["metadata"]["labels"]
        assert not selector.items() <= labels.items()


def test_it_may_do_what_it_does_and_no_more() -> None:
    job = "resumabletrainingjobs"
    alone = [("create", job), ("get", job, NAME), ("delete", job, NAME)]
    assert rights(hooks()) == alone
    assert rights(hooks(store=STORE)) == [*alone, ("list", "pods"), ("delete", "pods")]


@pytest.mark.parametrize(
    ("watched", "named", "where"),
    [
        ([], "", "rtj-system"),
        ([], "team-b", "team-b"),
        (["team-a", "team-b"], "", "team-a"),
        (["team-a", "rtj-system"], "", "rtj-system"),
        (["team-a", "team-b"], "team-b", "team-b"),
    ],
)
def test_its_job_is_where_jobs_are_looked_after(watched: list[str], named: str, where: str) -> None:
    objects = render(values={"watch.namespaces": watched, "test.namespace": named}, with_test=True)
    [role] = [e for e in objects if e["kind"] == "Role" and e["metadata"]["name"] == NAME]
    assert role["metadata"]["namespace"] == where
    [pod] = [each for each in objects if each["kind"] == "Pod"]
    assert pod["metadata"]["namespace"] == "rtj-system", "where helm looks for its log"
    settings = settings_from(environment_of([pod]))
    assert settings.namespace == where
    assert (settings.owner is not None) == (where == "rtj-system"), "an owner is of one namespace"


def test_a_namespace_without_an_operator_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"test\.namespace is other"):
        render(values={"watch.namespaces": ["team-a"], "test.namespace": "other"}, with_test=True)


def test_the_values_reach_the_job() -> None:
    pod = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    settings = settings_from(environment_of(hooks(store=STORE, podSpec=pod, timeoutSeconds=77)))
    job = desired_job(settings)
    assert settings.seconds == 77
    assert job["spec"]["checkpoint"]["store"] == STORE
    assert job["spec"]["template"]["spec"]["tolerations"] == pod["tolerations"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "resumable-training-sidecar:0.1.0"
    assert "--store" not in container["command"], "its pod is deleted instead"
    own = desired_job(settings_from(environment_of(hooks())))
    assert own["spec"]["checkpoint"]["store"] == {"url": "file:///trial/store"}
    assert own["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def status(**over: Any) -> dict[str, Any]:
    """Of a trial that went well, at its end."""
    return {
        "phase": "Succeeded",
        "attempt": 2,
        "starts": 2,
        "restarts": 1,
        "current": {"attempt": 2, "cause": "TrainerSignaled", "kind": "InPlace"},
        "resume": {"attempt": 2, "step": 1},
        "checkpoint": {"lastDurableStep": 2},
        **over,
    }


def test_it_tells_the_story_in_order() -> None:
    assert list(lines(status())) == [
        "the operator has taken the job",
        "attempt 1 trains, from step 0",
        "step 1 is saved, and durable",
        "the trainer was killed, and the operator has seen it: TrainerSignaled, so InPlace",
        "attempt 2 resumes from step 1",
        "step 2 is saved, and durable",
        "the job is Succeeded",
    ]
    assert list(lines({})) == []
    assert fault(status()) is None


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ({"phase": "Held"}, "phase Held, not Succeeded"),
        ({"starts": 1, "restarts": 0}, "starts 1, not 2; restarts 0, not 1"),
        ({"resume": {"attempt": 2, "scratch": True}}, "resumed from step None, not 1"),
        ({"checkpoint": {"lastDurableStep": 1}}, "last durable step 1, not 2"),
    ],
)
def test_what_went_otherwise_is_a_fault_by_name(over: dict[str, Any], told: str) -> None:
    assert fault(status(**over)) == told


def test_the_pod_is_deleted_once_and_after_the_save() -> None:
    first = {"attempt": 1, "starts": 1}
    assert not is_due(first)
    assert is_due({**first, "checkpoint": {"lastDurableStep": 1}})
    assert not is_due(status())


def test_it_does_not_wait_for_what_cannot_come() -> None:
    assert not is_over({"phase": "Running"})
    assert is_over(status())
    assert is_over({"phase": "Held"})
    refused = {"type": "Accepted", "status": "False", "reason": "InvalidSpec"}
    assert is_over({"phase": "Pending", "conditions": [refused]})


def test_the_jobs_own_words_are_repeated() -> None:
    said = {"type": "Accepted", "status": "False", "reason": "InvalidSpec", "message": "why"}
    hold = {"reason": "InvalidSpec", "message": "why"}
    told = list(words({"hold": hold, "conditions": [said]}))
    assert told == ["InvalidSpec: why", "Accepted=False InvalidSpec: why"]


def trained(*arguments: str, attempt: str = "1") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(trainer.__file__), *arguments],
        env={"RTJ_ATTEMPT": attempt},
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )


def test_the_trainer_dies_once_and_never_begins_anew(tmp_path: Path) -> None:
    out, store = tmp_path / "out", tmp_path / "store"
    (store / "run" / "manifests").mkdir(parents=True)
    (store / "run" / "manifests" / "f1-n1.json").touch()
    killed = trained("--out", str(out), "--store", str(store))
    assert killed.returncode == -9, killed.stderr
    assert json.loads((out / "state_1.json").read_text()) == {"step": 1, "total": 1}
    gone = trained("--out", str(out), "--resume", str(out / "state_1.json"), attempt="2")
    assert gone.returncode == 0, gone.stderr
    assert gone.stdout == "goes on from step 1\nstep 2 saved\n"
    anew = trained("--out", str(out), attempt="2")
    assert "started again without a checkpoint" in anew.stderr
    assert anew.returncode == 1


def test_its_pod_asks_for_no_gpu_and_no_privilege() -> None:
    settings: Settings = settings_from(ENVIRONMENT)
    pod = desired_job(settings)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert set(container["resources"]["limits"]) == {"memory"}
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
