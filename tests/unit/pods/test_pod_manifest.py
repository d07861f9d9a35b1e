"""Pods as whole manifests: goldens that Kubernetes' own schema accepts, and what each field means.

`RTJ_UPDATE_GOLDENS=1 pytest tests/unit/pods` rewrites the goldens; read the diff.
"""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from rtj_api import contract, wire
from rtj_api.v1alpha1 import JobSpec
from rtj_operator.core.avoid import keep_off
from rtj_operator.core.mounts import Sharing
from rtj_operator.core.pods import (
    Owner,
    PodSettings,
    desired_pod,
    refusal_of,
    sharing,
    status_port,
    template_hash,
    trainer_grace_seconds,
    warnings_of,
)
from rtj_operator.shell.views import status_port_of

GOLDEN = Path(__file__).parent / "golden"
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
    pod = desired_pod(made, owner=OWNER, rank=0, made_in=1, settings=SETTINGS)
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


def test_probes_are_asked_through_the_supervisor() -> None:
    trainer = trainer_of(a_pod(FULL), "train")
    probe = ["/rtj/bin/supervise", "probe", "--kind"]
    first = {"words": ["--timeout", "3", "--tcp", "127.0.0.1:80"], "delay": 0, "limit": 30}
    startup = ["--startup", json.dumps(first)]
    http = ["--timeout", "1", "--http", "http://127.0.0.1:8000/live"]
    assert trainer["livenessProbe"] == {
        "exec": {"command": [*probe, "liveness", "--threshold", "3", *startup, *http]},
        "periodSeconds": 7,
        "timeoutSeconds": 1 + 3 + 20,  # its own, the startup probe's, and room for the process
        "failureThreshold": 3 + 10,
    }
    assert trainer["readinessProbe"]["exec"]["command"] == [
        *probe, "readiness", *startup, "--timeout", "1", "--", "ready",
    ]  # fmt: skip
    assert trainer["startupProbe"]["exec"]["command"] == [*probe, "startup", *first["words"]]


def test_a_delay_counts_from_each_trainers_start_and_the_grace_is_the_supervisors() -> None:
    liveness = {
        "exec": {"command": ["alive"]},
        "initialDelaySeconds": 40,
        "failureThreshold": 5,
        "terminationGracePeriodSeconds": 7,
    }
    found = trainer_of(a_pod(a_spec(trainer={"livenessProbe": liveness})))["livenessProbe"]
    assert "initialDelaySeconds" not in found
    assert found["exec"]["command"][2:] == [
        *("--kind", "liveness", "--delay", "40", "--threshold", "5", "--grace", "7"),
        *("--timeout", "1", "--", "alive"),
    ]


def test_post_start_is_the_supervisors_and_the_kubelets_only_without_one() -> None:
    pod = a_pod(FULL)
    hook = trainer_of(pod, "train")["lifecycle"]["postStart"]["exec"]["command"]
    assert hook == ["/rtj/bin/supervise", "probe", "--kind", "unsupervised", "--", "warm-up"]
    assert config_of(pod)["postStart"] == ["--", "warm-up"]
    asleep = {"lifecycle": {"postStart": {"sleep": {"seconds": 3}}}}
    pod = a_pod(a_spec(trainer=asleep))
    assert trainer_of(pod)["lifecycle"] == asleep["lifecycle"]
    assert config_of(pod)["postStart"] == []


def test_host_network_declares_no_port_and_each_rank_has_its_own() -> None:
    pods = [a_pod(HOST_NETWORK, rank=rank) for rank in (0, 1)]
    assert all("ports" not in sidecar_of(pod) for pod in pods)
    ports = [status_port_of(pod) for pod in pods]
    assert ports == [
        status_port(HOST_NETWORK, owner=OWNER, rank=rank, made_in=1) for rank in (0, 1)
    ]
    later = [status_port(HOST_NETWORK, owner=OWNER, rank=rank, made_in=2) for rank in (0, 1)]
    assert len({*ports, *later}) == 4, "the pods before may still drain on the same node"
    assert all(10_000 <= port < 30_000 for port in ports)
    assert all(config_of(pod)["rendezvousTold"] for pod in pods)
    assert not config_of(a_pod(SMALLEST))["rendezvousTold"]


def mounted(source: dict, *, by: str | None = None, **mount: str):
    """A spec whose checkpoint directory lies on a volume of that source; `by`: the pod's field that
    stands in the mount's subPathExpr."""
    env = [{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": by}}}] if by else []
    expression = {"subPathExpr": "runs/$(ME)"} if by else {}
    return a_spec(
        replicas=2,
        trainer={
            "env": env,
            "volumeMounts": [{"name": "v", "mountPath": "/checkpoints", **expression, **mount}],
        },
        pod={"volumes": [{"name": "v", **source}]},
    )


CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
NFS = {"nfs": {"server": "nas", "path": "/runs"}}
HOST = {"hostPath": {"path": "/data"}}
BY_RANK = "metadata.labels['resumable-training.dev/rank']"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (SMALLEST, Sharing.POD),
        (mounted({"emptyDir": {}}), Sharing.POD),
        (mounted({"emptyDir": {"medium": "Memory"}}, subPath="a"), Sharing.POD),
        (mounted({"ephemeral": {"volumeClaimTemplate": {}}}), Sharing.POD),
        (mounted(CLAIM), Sharing.ALL),
        (mounted(CLAIM, subPath="runs/a"), Sharing.ALL),
        (mounted(NFS), Sharing.ALL),
        (mounted({"csi": {"driver": "smb.csi.k8s.io"}}), Sharing.ALL),
        (mounted({"rbd": {"image": "x"}}), Sharing.ALL),
        (mounted({"aKindOfTomorrow": {}}), Sharing.ALL),
        (mounted(CLAIM, by="metadata.name"), Sharing.POD),
        (mounted(CLAIM, by="metadata.uid"), Sharing.POD),
        (mounted(CLAIM, by=BY_RANK), Sharing.RANK),
        (mounted(NFS, by=BY_RANK), Sharing.RANK),
        (mounted(CLAIM, by="spec.nodeName"), Sharing.NODE),
        (mounted(CLAIM, by="metadata.namespace"), Sharing.ALL),
        (mounted(HOST), Sharing.NODE),
        (mounted(HOST, by=BY_RANK), Sharing.POD),
    ],
)
def test_who_can_write_a_directory_is_derived_from_its_volume(spec, expected: Sharing) -> None:
    assert sharing(spec) is expected
    told = config_of(a_pod(spec))
    assert told["sharedDirectory"] is (expected is Sharing.ALL and spec.replicas > 1)
    assert told["fencedDirectory"] is (expected in (Sharing.ALL, Sharing.RANK))


def test_a_single_pod_shares_with_nobody_and_is_fenced_all_the_same() -> None:
    told = config_of(a_pod(mounted(CLAIM).model_copy(update={"replicas": 1})))
    assert (told["sharedDirectory"], told["fencedDirectory"]) == (False, True)


def test_ranks_that_keep_saves_on_their_nodes_disk_are_kept_apart() -> None:
    def anti(pod: dict) -> list[dict]:
        rules = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        return rules.get("requiredDuringSchedulingIgnoredDuringExecution") or []

    ours = {
        "labelSelector": {"matchLabels": {"resumable-training.dev/job": OWNER.name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    assert anti(a_pod(mounted(HOST))) == [ours]
    assert anti(a_pod(mounted(CLAIM))) == []
    assert anti(a_pod(mounted(HOST).model_copy(update={"replicas": 1}))) == []
    theirs = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    template = deepcopy(mounted(HOST).template)
    template["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [theirs]}
    }
    both = mounted(HOST).model_copy(update={"template": template})
    assert anti(a_pod(both)) == [theirs, ours]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (SMALLEST, "a directory of the pod's own, which is lost with its pod"),
        (mounted({"emptyDir": {}}), "a volume, which is lost with its pod"),
        (mounted(HOST), "a volume, which is lost with its node"),
        (mounted(CLAIM, by=BY_RANK), "each rank sees its own part only"),
        (mounted(CLAIM), None),
        (mounted(NFS), None),
    ],
)
def test_without_a_store_the_volume_must_outlive_pods_and_nodes(spec, why: str | None) -> None:
    bare = spec.model_copy(
        update={"checkpoint": spec.checkpoint.model_copy(update={"store": None})}
    )
    refusal = refusal_of(bare, owner=OWNER)
    if why is None:
        assert refusal is None
        told = config_of(a_pod(bare))
        assert told["keepsInDirectory"] is True
        assert "storeUrl" not in told
        return
    assert refusal is not None
    assert "spec.checkpoint.store is not set" in refusal.message
    assert why in refusal.message
    assert "s3://" in refusal.message


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


CASES: dict[str, tuple[dict, str, str]] = {
    "no command": ({"trainer": {"command": None}}, "CommandMissing", "containers[0].command"),
    "two containers, none named trainer": (
        {"pod": {"containers": [{"name": "a"}, {"name": "b"}]}},
        "TrainerContainerAmbiguous",
        "none is named `trainer`",
    ),
    "no container": ({"pod": {"containers": []}}, "TrainerContainerAmbiguous", "containers"),
    "a container that is no object": ({"pod": {"containers": ["x"]}}, "InvalidSpec", "containers"),
    "command is a string": ({"trainer": {"command": "python"}}, "InvalidSpec", "list of strings"),
    "hostPID": ({"pod": {"hostPID": True}}, "InvalidSpec", "hostPID"),
    "mount is read-only": (
        {
            "trainer": {
                "volumeMounts": [{"name": "v", "mountPath": "/checkpoints", "readOnly": True}]
            },
            "pod": {"volumes": [{"name": "v", "emptyDir": {}}]},
        },
        "PathNotWritable",
        "readOnly",
    ),
    "claim is read-only": (
        {
            "trainer": {"volumeMounts": [{"name": "v", "mountPath": "/"}]},
            "pod": {
                "volumes": [
                    {"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
                ]
            },
        },
        "PathNotWritable",
        "persistentVolumeClaim.readOnly",
    ),
    "a ConfigMap": (
        {
            "trainer": {"volumeMounts": [{"name": "v", "mountPath": "/checkpoints"}]},
            "pod": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]},
        },
        "PathNotWritable",
        "configMap",
    ),
    "a mount below only": (
        {"trainer": {"volumeMounts": [{"name": "v", "mountPath": "/checkpoints/x"}]}},
        "InvalidSpec",
        "below spec.checkpoint.path",
    ),
    "a volume that is not there": (
        {"trainer": {"volumeMounts": [{"name": "v", "mountPath": "/checkpoints"}]}},
        "InvalidSpec",
        "no volume named 'v'",
    ),
    "our volume's name": (
        {"pod": {"volumes": [{"name": "rtj-run", "emptyDir": {}}]}},
        "InvalidSpec",
        "rtj-run",
    ),
    "our mount path": (
        {"trainer": {"volumeMounts": [{"name": "v", "mountPath": "/rtj/x"}]}},
        "InvalidSpec",
        "/rtj",
    ),
    "our container's name": (
        {"pod": {"initContainers": [{"name": "rtj-sidecar"}]}},
        "InvalidSpec",
        "initContainers[0]",
    ),
    "a gRPC probe": (
        {"trainer": {"livenessProbe": {"grpc": {"port": 1}}}},
        "InvalidSpec",
        "livenessProbe.grpc",
    ),
    "GPUs that are no number": (
        {"trainer": {"resources": {"limits": {"nvidia.com/gpu": "two"}}}},
        "InvalidSpec",
        "nvidia.com/gpu",
    ),
    "file store without a mount": (
        {"checkpoint": {"store": {"url": "file:///nas"}}},
        "InvalidSpec",
        "spec.checkpoint.store.url",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refusals_name_field_and_reason(case: str) -> None:
    arguments, reason, words = CASES[case]
    refusal = refusal_of(a_spec(**arguments), owner=OWNER)
    assert refusal is not None
    assert refusal.reason == reason
    assert words in refusal.message


def test_what_works_is_not_refused() -> None:
    for spec in (SMALLEST, FULL, HOST_NETWORK, FILE_STORE):
        assert refusal_of(spec, owner=OWNER) is None


@pytest.mark.parametrize(("replicas", "limit"), [(1, 50), (10, 50), (11, 49), (1001, 47)])
def test_names_just_fit_a_hostname(replicas: int, limit: int) -> None:
    spec = a_spec(replicas=replicas)
    fits = Owner(namespace="n", name="x" * limit, uid=OWNER.uid)
    assert refusal_of(spec, owner=fits) is None
    pod = desired_pod(spec, owner=fits, rank=replicas - 1, made_in=99_999, settings=SETTINGS)
    assert len(pod["metadata"]["name"]) == 63
    too_long = Owner(namespace="n", name="x" * (limit + 1), uid=OWNER.uid)
    refusal = refusal_of(spec, owner=too_long)
    assert refusal is not None
    assert refusal.reason == "NameTooLong"
    assert str(limit) in refusal.message


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


@pytest.mark.parametrize(
    ("trainer", "warned"),
    [
        ({}, False),
        ({"command": ["torchrun", "--max-restarts=3", "t.py"]}, True),
        ({"command": ["torchrun"], "args": ["--max_restarts", "2", "t.py"]}, True),
        ({"command": ["sh", "-c", "torchrun --max-restarts=3 t.py"]}, True),
        ({"command": ["torchrun", "--max-restarts=0", "t.py"]}, False),
        ({"env": [{"name": "PET_MAX_RESTARTS", "value": "5"}]}, True),
        ({"env": [{"name": "PET_MAX_RESTARTS", "value": "0"}]}, False),
        ({"command": ["python", "t.py", "--restarts", "3"]}, False),
    ],
)
def test_a_launcher_that_restarts_by_itself_is_warned_of(trainer: dict, warned: bool) -> None:
    warnings = warnings_of(a_spec(trainer=trainer))
    assert bool(warnings) is warned
    if warned:
        assert warnings[0].reason == "TrainerRestartsItself"
        assert "containers[0]" in warnings[0].message
