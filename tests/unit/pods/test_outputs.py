"""`spec.outputs`: the sidecar reads them where the trainer writes them, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rtj_api import contract
from rtj_api.v1alpha1 import JobSpec
from rtj_operator.core.pod_facts import Owner, PodSettings
from rtj_operator.core.pods import desired_pod, refusal_of, template_hash

OWNER = Owner(namespace="team", name="gpt", uid="0a1b2c3d-0000-0000-0000-000000000000")


def spec(*outputs: str, mounts: tuple[dict[str, Any], ...] = ()) -> JobSpec:
    container = {"name": "trainer", "image": "i", "command": ["train"], "volumeMounts": [*mounts]}
    volumes = [{"name": mount["name"], "emptyDir": {}} for mount in mounts]
    return JobSpec.model_validate(
        {
            "checkpoint": {"path": "/checkpoints", "store": {"url": "s3://b"}},
            "template": {"spec": {"containers": [container], "volumes": volumes}},
            **({"outputs": list(outputs)} if outputs else {}),
        }
    )


def test_the_trainers_mount_is_read_by_the_sidecar() -> None:
    mount = {"name": "results", "mountPath": "/results", "subPath": "a"}
    wanted = spec("/results/final", "/results/report.html", "/checkpoints/model", mounts=(mount,))
    pod = desired_pod(
        wanted,
        owner=OWNER,
        rank=0,
        made_in=1,
        settings=PodSettings(sidecar_image="s", cluster_uid="c"),
    )
    sidecar = pod["spec"]["initContainers"][0]
    assert [m for m in sidecar["volumeMounts"] if m["name"] == "results"] == [
        {**mount, "readOnly": True}
    ]
    env = {entry["name"]: entry.get("value") for entry in sidecar["env"]}
    config = json.loads(env[contract.ENV_CONFIG].replace("$$(", "$("))
    assert config["outputs"] == list(wanted.outputs)


def test_a_path_that_ends_with_the_container_is_refused() -> None:
    refusal = refusal_of(spec("/results"), owner=OWNER)
    assert refusal is not None
    assert "spec.outputs[0] /results lies on no volumeMount" in refusal.message
    assert refusal_of(spec("/checkpoints/model"), owner=OWNER) is None


@pytest.mark.parametrize(("outputs", "same"), [((), True), (("/checkpoints/x",), False)])
def test_only_what_is_stated_changes_the_pods(outputs: tuple[str, ...], same: bool) -> None:
    assert (template_hash(spec(*outputs)) == template_hash(spec())) is same
