"""The models of the spec: names on the wire, defaults, what they keep and refuse."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from rtj_api.v1alpha1 import Framework, JobSpec, Mirror, OnNoValid


def minimal() -> dict[str, Any]:
    return {
        "checkpoint": {"path": "/checkpoints", "store": {"url": "s3://bucket/prefix"}},
        "template": {
            "spec": {"containers": [{"name": "trainer", "image": "a:1", "command": ["python"]}]}
        },
    }


def test_the_smallest_job_has_every_default() -> None:
    spec = JobSpec.model_validate(minimal())
    assert spec.replicas == 1
    assert spec.framework is Framework.PYTORCH
    assert spec.checkpoint.on_no_valid is OnNoValid.HOLD
    assert spec.checkpoint.local.mirror is Mirror.AUTO
    assert spec.checkpoint.run_id is None
    assert spec.recovery.max_restarts == 10
    assert spec.sidecar.drain_seconds == 300
    assert spec.suspend is False


def test_names_on_the_wire_are_camel_case() -> None:
    wanted = minimal()
    wanted["procsPerReplica"] = 8
    wanted["checkpoint"] |= {"runID": "team/run", "resumeArgs": ["--resume", "x"]}
    wanted["checkpoint"]["store"]["credentialsSecret"] = "s3"
    spec = JobSpec.model_validate(wanted)
    assert spec.procs_per_replica == 8
    assert spec.checkpoint.run_id == "team/run"
    assert spec.checkpoint.store.credentials_secret == "s3"
    dumped = spec.dump()
    assert dumped["checkpoint"]["runID"] == "team/run"
    assert dumped["checkpoint"]["resumeArgs"] == ["--resume", "x"]
    assert JobSpec.model_validate(dumped) == spec


def test_the_template_passes_through_known_or_not() -> None:
    wanted = minimal()
    wanted["template"]["spec"]["fieldOfTheFuture"] = {"deep": [1, {"x": None}]}
    assert JobSpec.model_validate(wanted).dump()["template"] == wanted["template"]


def test_a_field_of_a_newer_version_is_no_error() -> None:
    assert JobSpec.model_validate(minimal() | {"elastic": {"minReplicas": 1}}).replicas == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("replicas",), 0),
        (("framework",), "theano"),
        (("checkpoint", "onNoValid"), "Pray"),
        (("recovery",), {"maxRestarts": -1}),
        (("sidecar",), {"drainSeconds": -1}),
    ],
)
def test_values_out_of_bounds_name_their_field(path: tuple[str, ...], value: Any) -> None:
    wanted = minimal()
    place = wanted
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate(wanted)
    assert refused.value.errors()[0]["loc"][: len(path)] == path


def test_models_are_frozen() -> None:
    spec = JobSpec.model_validate(minimal())
    with pytest.raises(ValidationError):
        spec.replicas = 2  # type: ignore[misc]
