"""A directory in `checkpoint.resumeFrom`: the sidecar sees it where the trainer does, read-only."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_api.v1alpha1 import JobSpec
from rtj_operator.core.pod_facts import Owner, PodSettings
from rtj_operator.core.pods import desired_pod, refusal_of, template_hash

OWNER = Owner(namespace="team", name="gpt", uid="0a1b2c3d-0000-0000-0000-000000000000")
DATA = {"name": "data", "mountPath": "/data", "subPath": "team"}


def spec(resume_from: str | None, *mounts: dict[str, Any]) -> JobSpec:
    container = {"name": "trainer", "image": "i", "command": ["train"], "volumeMounts": [*mounts]}
    volumes = [{"name": m["name"], "persistentVolumeClaim": {"claimName": "c"}} for m in mounts]
    checkpoint: dict[str, Any] = {"path": "/checkpoints", "store": {"url": "s3://b"}}
    if resume_from is not None:
        checkpoint["resumeFrom"] = resume_from
    return JobSpec.model_validate(
        {
            "checkpoint": checkpoint,
            "template": {"spec": {"containers": [container], "volumes": volumes}},
        }
    )


def seen_by_sidecar(wanted: JobSpec) -> list[dict[str, Any]]:
    settings = PodSettings(sidecar_image="s", cluster_uid="c")
    pod = desired_pod(wanted, owner=OWNER, rank=0, made_in=1, settings=settings)
    mounts = pod["spec"]["initContainers"][0]["volumeMounts"]
    return [mount for mount in mounts if mount["name"] == "data"]


@pytest.mark.parametrize("value", ["/data/old/run", "/data", "file:///data/old/manifest.json"])
def test_the_trainers_mount_is_read_by_the_sidecar(value: str) -> None:
    assert seen_by_sidecar(spec(value, DATA)) == [{**DATA, "readOnly": True}]


@pytest.mark.parametrize("value", [None, "f1-n1", "team/gpt", "s3://b/old", "/checkpoints/old"])
def test_any_other_value_changes_no_pod(value: str | None) -> None:
    at_path = {"name": "own", "mountPath": "/checkpoints"}
    assert seen_by_sidecar(spec(value, DATA, at_path)) == []
    assert template_hash(spec(value, DATA, at_path)) == template_hash(spec(None, DATA, at_path))


def test_a_pod_without_that_mount_is_made_anew() -> None:
    assert template_hash(spec("/data/a", DATA)) != template_hash(spec(None, DATA))
    assert template_hash(spec("/data/a", DATA)) == template_hash(spec("/data/b", DATA))


def test_a_directory_on_no_volume_is_refused_with_the_remedy() -> None:
    refusal = refusal_of(spec("/elsewhere/old", DATA), owner=OWNER)
    assert refusal is not None
    assert "spec.checkpoint.resumeFrom /elsewhere/old lies on no volumeMount" in refusal.message
    assert "Mount the volume" in refusal.message
