"""Templates that no pod is made from: each refusal names the field and the reason."""

from __future__ import annotations

import pytest
from kit.specs import FILE_STORE, FULL, HOST_NETWORK, OWNER, SETTINGS, SMALLEST, a_spec
from rtj_operator.core.pod_facts import Owner
from rtj_operator.core.pods import desired_pod, refusal_of, warnings_of

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
    "a global batch that all pods do not divide": (
        {"elastic": {"minReplicas": 1, "globalBatch": 5, "microBatch": 2}},
        "InvalidSpec",
        "2 pods x 1 processes x microBatch 2 = 4 samples at once, which does not divide "
        "globalBatch 5. Change globalBatch",
    ),
    "a listed size that does not divide it": (
        {
            "replicas": 4,
            "elastic": {
                "minReplicas": 2,
                "allowedReplicas": [3],
                "globalBatch": 16,
                "microBatch": 2,
            },
        },
        "InvalidSpec",
        "3 pods x 1 processes",
    ),
    "no other size keeps the batch": (
        {"replicas": 4, "elastic": {"minReplicas": 3, "globalBatch": 16, "microBatch": 2}},
        "InvalidSpec",
        "allows no size from minReplicas 3 to below replicas 4",
    ),
    "elastic in a queue": (
        {"elastic": {"minReplicas": 1}, "scheduling": {"gang": "kueue", "queue": "q"}},
        "InvalidSpec",
        "spec.elastic does not go with spec.scheduling.gang kueue",
    ),
    "the rank's label in an elastic gang": (
        {
            "elastic": {"minReplicas": 1},
            "trainer": {
                "env": [
                    {
                        "name": "R",
                        "valueFrom": {
                            "fieldRef": {
                                "fieldPath": "metadata.labels['resumable-training.dev/rank']"
                            }
                        },
                    }
                ]
            },
        },
        "InvalidSpec",
        "remove spec.elastic",
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
