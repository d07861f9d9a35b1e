"""Shapes that people's pods have, and what the sidecar gets of each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.v1alpha1 import JobSpec
from rtj_operator.core.pod_facts import Owner, PodSettings
from rtj_operator.core.pods import desired_pod, refusal_of, warnings_of

OWNER = Owner(namespace="team", name="gpt", uid="0a1b2c3d-0000-0000-0000-000000000000")
IN_MEMORY = {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
MOUNT = {"name": "fast", "mountPath": "/checkpoints"}


def spec_of(
    *, trainer: dict | None = None, pod: dict | None = None, store: dict | None = None, **more: Any
) -> JobSpec:
    container = {"name": "trainer", "image": "i", "command": ["python", "t.py"], **(trainer or {})}
    return JobSpec.model_validate(
        {
            "replicas": 1,
            "checkpoint": {"path": "/checkpoints", "store": {"url": "s3://b/p", **(store or {})}},
            "template": {"spec": {"containers": [container], **(pod or {})}},
            **more,
        }
    )


def pod_of(spec: JobSpec, **settings: Any) -> dict:
    made = PodSettings(cluster_uid="c", sidecar_image="s", **settings)
    return desired_pod(spec, owner=OWNER, rank=0, made_in=1, settings=made)["spec"]


def sidecar_of(spec: JobSpec, **settings: Any) -> dict:
    return pod_of(spec, **settings)["initContainers"][0]


def in_memory(volume: dict | None = None, **more: Any) -> JobSpec:
    mounted = {"volumeMounts": [MOUNT], **more.pop("trainer", {})}
    return spec_of(trainer=mounted, pod={"volumes": [volume or IN_MEMORY]}, **more)


def test_the_sidecars_memory_covers_a_directory_in_memory() -> None:
    assert sidecar_of(in_memory())["resources"] == {
        "requests": {"cpu": "250m", "memory": "9216Mi"},
        "limits": {"memory": "9216Mi"},
    }
    default = {"limits": {"memory": "512Mi"}, "requests": {"cpu": "50m"}}
    assert sidecar_of(in_memory(), sidecar_resources=default)["resources"] == {
        "limits": {"memory": "8704Mi"},
        "requests": {"cpu": "50m"},
    }
    assert warnings_of(in_memory()) == ()


def test_a_guaranteed_pod_with_a_directory_in_memory_stays_guaranteed() -> None:
    spec = in_memory(trainer={"resources": {"limits": {"cpu": "4", "memory": "32Gi"}}})
    resources = sidecar_of(spec)["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": "1", "memory": "9216Mi"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (in_memory({"name": "fast", "emptyDir": {"medium": "Memory"}}), "emptyDir.sizeLimit"),
        (
            in_memory(sidecar={"resources": {"limits": {"memory": "2Gi"}}}),
            "spec.sidecar.resources.limits.memory is 2Gi, less than",
        ),
    ],
)
def test_a_limit_that_cannot_cover_it_is_told(spec: JobSpec, words: str) -> None:
    (warning,) = warnings_of(spec)
    assert warning.reason == Reason.SIDECAR_MEMORY_TOO_SMALL
    assert words in warning.message


def test_memory_volumes_that_hold_no_checkpoints_change_nothing() -> None:
    shm = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    spec = spec_of(
        trainer={"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}, pod={"volumes": [shm]}
    )
    assert sidecar_of(spec)["resources"]["limits"] == {"memory": "1Gi"}
    assert warnings_of(spec) == ()


@pytest.mark.parametrize(
    ("bundle", "source"),
    [
        (
            {"configMap": "ca"},
            {"configMap": {"name": "ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ),
        (
            {"secret": "tls", "key": "our.pem"},
            {"secret": {"secretName": "tls", "items": [{"key": "our.pem", "path": "ca.crt"}]}},
        ),
    ],
)
def test_a_private_authority_reaches_the_sidecar_alone(bundle: dict, source: dict) -> None:
    pod = pod_of(spec_of(store={"caBundle": bundle}))
    assert {"name": contract.VOLUME_CA, **source} in pod["volumes"]
    sidecar, trainer = pod["initContainers"][0], pod["containers"][0]
    mounts = {m["name"]: m for m in sidecar["volumeMounts"]}
    assert mounts[contract.VOLUME_CA]["mountPath"] == contract.MOUNT_CA
    assert contract.VOLUME_CA not in {m["name"] for m in trainer["volumeMounts"]}
    env = {entry["name"]: entry.get("value") for entry in sidecar["env"]}
    assert json.loads(env[contract.ENV_CONFIG])["storeCaFile"] == "/rtj-ca/ca.crt"


def test_its_volume_name_is_taken() -> None:
    refusal = refusal_of(
        spec_of(pod={"volumes": [{"name": "rtj-ca", "emptyDir": {}}]}), owner=OWNER
    )
    assert refusal is not None
    assert "rtj-ca is the operator's" in refusal.message


def test_what_a_restricted_namespace_asks_of_the_sidecar() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/, level restricted."""
    context = sidecar_of(spec_of(pod={"securityContext": {"runAsUser": 1000}}))["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == 1000
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True


def test_labels_of_files_follow_the_trainers() -> None:
    options = {"level": "s0:c1,c2"}
    spec = spec_of(trainer={"securityContext": {"seLinuxOptions": options}})
    assert sidecar_of(spec)["securityContext"]["seLinuxOptions"] == options


def test_what_people_write_passes_through() -> None:
    wrote = {
        "imagePullSecrets": [{"name": "registry"}],
        "shareProcessNamespace": True,
        "priorityClassName": "high",
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
        "fieldOfANewerVersion": {"x": 1},
    }
    helper = {"name": "helper", "image": "h"}
    proxy = {"name": "proxy", "image": "p", "restartPolicy": "Always"}
    pod = pod_of(spec_of(pod={**wrote, "initContainers": [proxy]}))
    assert {key: pod[key] for key in wrote} == wrote
    assert pod["initContainers"][1:] == [proxy]
    trainer = {"name": "trainer", "image": "i", "command": ["t"]}
    pod = pod_of(spec_of(pod={"containers": [helper, trainer]}))
    assert pod["containers"][0] == helper


def sub_path(*env: dict, expression: str, **trainer: Any) -> dict:
    mount = {"name": "data", "mountPath": "/checkpoints", "subPathExpr": expression}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    shape = {"env": list(env), "volumeMounts": [mount], **trainer}
    return sidecar_of(spec_of(trainer=shape, pod={"volumes": [claim]}))


def test_a_sub_path_takes_the_variables_that_its_variables_are_made_of() -> None:
    env = [
        {"name": "TEAM", "value": "nlp"},
        {"name": "SECRET", "value": "x"},
        {"name": "WHERE", "value": "runs/$(TEAM)"},
    ]
    copied = [entry["name"] for entry in sub_path(*env, expression="$(WHERE)/a")["env"]]
    assert copied[:2] == ["TEAM", "WHERE"]
    assert "SECRET" not in copied


def test_a_sub_path_of_a_variable_from_elsewhere_takes_its_source() -> None:
    source = {"configMapRef": {"name": "settings"}}
    made = sub_path(expression="$(FROM_MAP)", envFrom=[source])
    assert made["envFrom"] == [source]
    stated = {"name": "HERE", "value": "a"}
    assert "envFrom" not in sub_path(stated, expression="$(HERE)", envFrom=[source])
