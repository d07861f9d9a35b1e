"""Who else can write a rank's checkpoint directory, by its volume, and what follows from it."""

from __future__ import annotations

from copy import deepcopy

import pytest
from kit.specs import OWNER, SMALLEST, a_pod, a_spec, config_of
from rtj_operator.core.mounts import Sharing
from rtj_operator.core.pod_facts import sharing
from rtj_operator.core.pods import refusal_of


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
