"""Pods as whole manifests: goldens that Kubernetes' own schema accepts, and what each field means.

`RTJ_UPDATE_GOLDENS=1 pytest tests/unit/pods` rewrites the goldens; read the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from kit.specs import (
    FILE_STORE,
    FULL,
    HOST_NETWORK,
    SMALLEST,
    a_pod,
    a_spec,
    config_of,
    sidecar_of,
    trainer_of,
)
from rtj_api import contract, wire
from rtj_api.v1alpha1 import JobSpec
from rtj_operator.core.avoid import keep_off
from rtj_operator.core.pod_facts import trainer_grace_seconds
from rtj_operator.core.pods import template_hash

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("smallest", SMALLEST),
        ("full", FULL),
        ("host-network", HOST_NETWORK),
        ("file-store", FILE_STORE),
    ],
)
def test_golden_and_schema(name: str, spec: JobSpec) -> None:
    pod = a_pod(spec, rank=1, made_in=3)
    kubernetes_validate.validate(pod, "1.34", strict=True)
    # Its JSON as a tree, so that a new field is one more line.
    env = {entry["name"]: entry for entry in sidecar_of(pod)["env"]}
    env[contract.ENV_CONFIG]["value"] = config_of(pod)
    text = yaml.safe_dump(pod, sort_keys=False, width=100)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("RTJ_UPDATE_GOLDENS"):
        path.write_text(text)
    assert yaml.safe_load(path.read_text()) == pod, f"{path} differs; see this file's docstring"


def test_the_command_is_wrapped_and_the_arguments_stay() -> None:
    trainer = trainer_of(a_pod(SMALLEST))
    assert trainer["command"] == ["/rtj/bin/supervise", "--", "python", "train.py"]
    assert trainer["args"] == ["--epochs", "3"]


def test_the_users_environment_wins_over_ours() -> None:
    env = {e["name"]: e["value"] for e in trainer_of(a_pod(FULL), "train")["env"]}
    assert env == {"TEAM": "nlp", "PYTHONUNBUFFERED": "0", "PET_MAX_RESTARTS": "0"}


def test_only_the_sidecar_gets_the_stores_credentials() -> None:
    pod = a_pod(SMALLEST)
    assert sidecar_of(pod)["envFrom"] == [{"secretRef": {"name": "s3-credentials"}}]
    assert "s3-credentials" not in json.dumps(pod["spec"]["containers"])


def test_the_sidecar_is_the_first_init_container_and_restarts() -> None:
    pod = a_pod(FULL)
    assert [c["name"] for c in pod["spec"]["initContainers"]] == ["rtj-sidecar", "fetch"]
    assert sidecar_of(pod)["restartPolicy"] == "Always"


def test_the_config_survives_kubernetes_expansion_and_says_what_the_spec_says() -> None:
    value = next(e["value"] for e in sidecar_of(a_pod(FULL))["env"] if e["name"] == "RTJ_CONFIG")
    assert "$$(RTJ_RESUME_CHECKPOINT)" in value
    config = wire.SidecarConfig.model_validate_json(value.replace("$$(", "$("))
    assert config.resume_args == ["--resume", "$(RTJ_RESUME_CHECKPOINT)"]
    assert (config.run_id, config.procs_per_replica, config.keep_last) == ("llama-7b", 4, 5)
    assert config.shared_directory
    assert config.trainer_grace_seconds == 60


@pytest.mark.parametrize(
    ("retention", "has_store", "thin"),
    [
        ({"keepLast": 5}, True, True),
        ({"keepLast": 5, "thin": "none"}, True, False),
        ({"keepLast": 5}, False, False),
        ({"keepLast": 5, "thin": "geometric"}, False, True),
    ],
)
def test_older_saves_are_thinned_in_a_store_unless_the_spec_says_otherwise(
    retention: dict, has_store: bool, thin: bool
) -> None:
    best = {"keepBest": {"metric": "acc", "mode": "max", "count": 2}, "keepEvery": 1000}
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    made = a_spec(
        trainer={"volumeMounts": [{"name": "v", "mountPath": "/checkpoints"}]},
        pod={"volumes": [volume]},
        checkpoint={"retention": retention | best, **({} if has_store else {"store": None})},
    )
    pod = a_pod(made)
    value = next(e["value"] for e in sidecar_of(pod)["env"] if e["name"] == "RTJ_CONFIG")
    config = wire.SidecarConfig.model_validate_json(value.replace("$$(", "$("))
    assert config.keep == wire.KeepRules(
        every=1000, best_metric="acc", best_highest=True, best_count=2, thin=thin
    )


def test_the_default_run_id_is_namespace_and_name() -> None:
    value = next(
        e["value"] for e in sidecar_of(a_pod(SMALLEST))["env"] if e["name"] == "RTJ_CONFIG"
    )
    assert wire.SidecarConfig.model_validate_json(value).run_id == "team/gpt"


def test_grace_is_the_templates_plus_the_drain() -> None:
    assert a_pod(SMALLEST)["spec"]["terminationGracePeriodSeconds"] == 330
    assert a_pod(FULL)["spec"]["terminationGracePeriodSeconds"] == 120
    assert trainer_grace_seconds(FULL) == 60


def test_no_token_unless_asked() -> None:
    assert a_pod(SMALLEST)["spec"]["automountServiceAccountToken"] is False
    assert a_pod(FULL)["spec"]["automountServiceAccountToken"] is True


def test_security_root_with_three_capabilities_unless_a_user_is_stated() -> None:
    root = sidecar_of(a_pod(SMALLEST))["securityContext"]
    assert root["runAsUser"] == 0
    assert root["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]}
    user = sidecar_of(a_pod(FULL))["securityContext"]
    assert (user["runAsUser"], user["runAsGroup"]) == (1000, 3000)
    assert user["capabilities"] == {"drop": ["ALL"]}


def test_the_trainers_own_user_goes_before_the_pods() -> None:
    spec = a_spec(
        trainer={"securityContext": {"runAsUser": 7}}, pod={"securityContext": {"runAsUser": 9}}
    )
    assert sidecar_of(a_pod(spec))["securityContext"]["runAsUser"] == 7


def test_a_guaranteed_pod_stays_one_and_no_other_is_throttled() -> None:
    even = {"cpu": "2", "memory": "4Gi"}
    guaranteed = sidecar_of(a_pod(a_spec(trainer={"resources": {"limits": even}})))["resources"]
    assert guaranteed["requests"] == guaranteed["limits"]
    assert set(guaranteed["limits"]) == {"cpu", "memory"}
    assert "cpu" not in sidecar_of(a_pod(SMALLEST))["resources"]["limits"]


def test_sidecar_requests_equal_limits_unless_stated() -> None:
    resources = sidecar_of(a_pod(FULL))["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": "2", "memory": "4Gi"}


def test_unknown_fields_pass_through() -> None:
    spec = a_spec(
        trainer={"fieldOfTomorrow": {"x": [1]}}, pod={"alsoNew": "y", "schedulingGates": []}
    )
    pod = a_pod(spec)["spec"]
    assert pod["alsoNew"] == "y"
    assert pod["containers"][0]["fieldOfTomorrow"] == {"x": [1]}


def test_the_spec_is_not_changed_by_making_a_pod() -> None:
    before = FULL.model_dump_json()
    a_pod(FULL)
    assert FULL.model_dump_json() == before


def test_our_labels_win_over_the_templates() -> None:
    spec = JobSpec.model_validate(
        {
            **SMALLEST.dump(),
            "template": {
                **SMALLEST.template,
                "metadata": {"labels": {contract.LABEL_RANK: "99", "team": "a"}},
            },
        }
    )
    labels = a_pod(spec, rank=1)["metadata"]["labels"]
    assert labels[contract.LABEL_RANK] == "1"
    assert labels["team"] == "a"


def test_mounts_are_copied_whole_with_the_environment_of_their_sub_path() -> None:
    sidecar = sidecar_of(a_pod(FULL))
    assert {"name": "data", "mountPath": "/data", "subPathExpr": "$(TEAM)/x"} in sidecar[
        "volumeMounts"
    ]
    assert {"name": "logs", "mountPath": "/data/ckpt/logs"} in sidecar["volumeMounts"]
    assert {"name": "TEAM", "value": "nlp"} in sidecar["env"]


def test_template_hash_follows_what_the_user_wrote_and_nothing_else() -> None:
    assert template_hash(SMALLEST) == template_hash(a_spec())
    assert template_hash(SMALLEST) == template_hash(a_spec(replicas=3, suspend=True))
    assert template_hash(SMALLEST) == template_hash(a_spec(sidecar={"drainSeconds": 300}))
    assert template_hash(SMALLEST) == template_hash(a_spec(checkpoint={"onNoValid": "Hold"}))
    for steered in (
        {"takeOver": "uid-9"},
        {"resumeFrom": "other/run"},
        {"onExistingRun": "Fresh"},
    ):
        assert template_hash(SMALLEST) == template_hash(a_spec(checkpoint=steered)), steered
    assert template_hash(SMALLEST) != template_hash(a_spec(trainer={"image": "my/trainer:2"}))
    assert template_hash(SMALLEST) != template_hash(a_spec(sidecar={"image": "other"}))


def test_a_pod_keeps_off_each_of_several_nodes_beside_the_users_own_affinity() -> None:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    zone = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    own = {"nodeAffinity": {key: {"nodeSelectorTerms": [zone]}}}
    pod = keep_off(a_pod(a_spec(pod={"affinity": own})), ("b", "a"))
    kubernetes_validate.validate(pod, "1.34", strict=True)
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][key]["nodeSelectorTerms"]
    assert term["matchExpressions"] == zone["matchExpressions"]
    # More than one value in a field selector is refused by the API server.
    assert [demand["values"] for demand in term["matchFields"]] == [["a"], ["b"]]
    assert keep_off(pod, ()) is pod
