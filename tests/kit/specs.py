"""Job specs and the pods made from them, and what a test looks at in such a pod."""

from __future__ import annotations

import json
from typing import Any

from rtj_api import contract
from rtj_api.v1alpha1 import JobSpec
from rtj_operator.core.pod_facts import Owner, PodSettings
from rtj_operator.core.pods import desired_pod

SETTINGS = PodSettings(
    cluster_uid="11111111-2222-3333-4444-555555555555",
    sidecar_image="registry.example/sidecar:1.0",
)


OWNER = Owner(namespace="team", name="gpt", uid="0a1b2c3d-0000-0000-0000-000000000000")


def a_spec(*, trainer: dict | None = None, pod: dict | None = None, **spec: Any) -> JobSpec:
    container = {
        "name": "trainer",
        "image": "my/trainer:1",
        "command": ["python", "train.py"],
        "args": ["--epochs", "3"],
        **(trainer or {}),
    }
    body = {
        "replicas": 2,
        "checkpoint": {
            "path": "/checkpoints",
            "store": {"url": "s3://bucket/prefix", "credentialsSecret": "s3-credentials"},
            **spec.pop("checkpoint", {}),
        },
        "template": {"spec": {"containers": [container], **(pod or {})}},
        **spec,
    }
    return JobSpec.model_validate(body)


def a_pod(spec: JobSpec, *, rank: int = 0, made_in: int = 1) -> dict:
    return desired_pod(spec, owner=OWNER, rank=rank, made_in=made_in, settings=SETTINGS)


def trainer_of(pod: dict, name: str = "trainer") -> dict:
    return next(c for c in pod["spec"]["containers"] if c["name"] == name)


def sidecar_of(pod: dict) -> dict:
    return pod["spec"]["initContainers"][0]


def config_of(pod: dict) -> dict:
    """What the sidecar is told, as JSON."""
    env = {entry["name"]: entry.get("value") for entry in sidecar_of(pod)["env"]}
    return json.loads(env[contract.ENV_CONFIG].replace("$$(", "$("))


SMALLEST = a_spec()


FULL = a_spec(
    trainer={
        "name": "train",
        "resources": {"limits": {"nvidia.com/gpu": 4, "cpu": "8", "memory": "64Gi"}},
        "env": [{"name": "TEAM", "value": "nlp"}, {"name": "PYTHONUNBUFFERED", "value": "0"}],
        "livenessProbe": {"httpGet": {"path": "live", "port": "web"}, "periodSeconds": 7},
        "readinessProbe": {"exec": {"command": ["ready"]}},
        "startupProbe": {"tcpSocket": {"port": 80}, "timeoutSeconds": 3},
        "lifecycle": {"postStart": {"exec": {"command": ["warm-up"]}}},
        "ports": [{"name": "web", "containerPort": 8000}],
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "subPathExpr": "$(TEAM)/x"},
            {"name": "logs", "mountPath": "/data/ckpt/logs"},
        ],
        "terminationMessagePath": "/tmp/message",
    },
    pod={
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,
        "serviceAccountName": "trainers",
        "automountServiceAccountToken": True,
        "initContainers": [{"name": "fetch", "image": "i", "command": ["true"]}],
        "securityContext": {"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
            {"name": "logs", "emptyDir": {}},
        ],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
    checkpoint={
        "path": "/data/ckpt",
        "runID": "llama-7b",
        "resumeArgs": ["--resume", "$(RTJ_RESUME_CHECKPOINT)"],
        "store": {"url": "s3://b/p", "endpoint": "http://s3:8333", "region": "eu-1"},
        "retention": {"keepLast": 5},
    },
    sidecar={
        "image": "mine/sidecar:2",
        "imagePullPolicy": "Always",
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "envFrom": [{"secretRef": {"name": "more"}}],
        "drainSeconds": 60,
    },
)


HOST_NETWORK = a_spec(pod={"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"})


FILE_STORE = a_spec(
    trainer={"volumeMounts": [{"name": "nas", "mountPath": "/nas"}]},
    pod={"volumes": [{"name": "nas", "nfs": {"server": "nas.example", "path": "/v"}}]},
    checkpoint={"path": "/ckpt", "store": {"url": "file:///nas/store"}},
)
