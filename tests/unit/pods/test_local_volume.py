"""checkpoint.local: the emptyDir that the operator adds, and what contradicts it."""

from __future__ import annotations

from typing import Any

import pytest
from kit.specs import OWNER, a_pod, a_spec, config_of, sidecar_of
from rtj_api.reasons import Reason
from rtj_api.v1alpha1 import JobSpec
from rtj_operator.core.pods import refusal_of, template_hash, warnings_of

GIB = 2**30


def local(trainer: dict | None = None, pod: dict | None = None, **fields: Any) -> JobSpec:
    return a_spec(trainer=trainer, pod=pod, checkpoint={"local": fields})


def volume_of(spec: JobSpec) -> dict:
    volumes = a_pod(spec)["spec"]["volumes"]
    return next(v for v in volumes if v["name"] == "rtj-checkpoints")["emptyDir"]


def limits(**resources: str) -> dict:
    return {"resources": {"limits": {k.replace("_", "-"): v for k, v in resources.items()}}}


def test_a_size_limits_the_volume_and_brings_the_pod_to_a_disk_that_has_it() -> None:
    spec = local(size="200Gi")
    assert volume_of(spec) == {"sizeLimit": "200Gi"}
    pod = a_pod(spec)
    assert sidecar_of(pod)["resources"]["requests"]["ephemeral-storage"] == "200Gi"
    assert "ephemeral-storage" not in sidecar_of(pod)["resources"]["limits"]
    assert config_of(pod)["podVolumeBytes"] == 200 * GIB
    assert volume_of(local()) == {}
    assert "podVolumeBytes" not in config_of(a_pod(local()))
    assert template_hash(spec) != template_hash(local())


def test_a_template_that_states_its_disk_is_left_as_it_is() -> None:
    spec = local(size="200Gi", trainer=limits(ephemeral_storage="300Gi"))
    assert "ephemeral-storage" not in sidecar_of(a_pod(spec))["resources"]["requests"]


def test_memory_counts_against_the_sidecar_too() -> None:
    spec = local(size="8Gi", medium="Memory")
    assert volume_of(spec) == {"medium": "Memory", "sizeLimit": "8Gi"}
    resources = sidecar_of(a_pod(spec))["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == f"{9 * 1024}Mi"
    assert "ephemeral-storage" not in resources["requests"]
    small = a_spec(
        checkpoint={"local": {"size": "8Gi", "medium": "Memory"}},
        sidecar={"resources": {"limits": {"memory": "4Gi"}}},
    )
    assert [w.reason for w in warnings_of(small)] == [Reason.SIDECAR_MEMORY_TOO_SMALL]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            local(size="8Gi", medium="Memory", trainer=limits(memory="8Gi")),
            "container trainer of spec.template has a memory limit of 8Gi",
        ),
        (
            local(size="200Gi", trainer=limits(ephemeral_storage="100Gi")),
            "evict the pod before that is full",
        ),
    ],
)
def test_what_the_template_does_not_let_it_write_is_told(spec: JobSpec, words: str) -> None:
    (warning,) = warnings_of(spec)
    assert warning.reason == Reason.LOCAL_SIZE_ABOVE_LIMITS
    assert words in warning.message


@pytest.mark.parametrize(
    "spec",
    [
        local(size="8Gi", medium="Memory", trainer=limits(memory="9Gi")),
        local(size="200Gi", trainer=limits(memory="8Gi", ephemeral_storage="201Gi")),
        local(size="200Gi"),
    ],
)
def test_what_fits_is_not_warned_of(spec: JobSpec) -> None:
    assert warnings_of(spec) == ()


@pytest.mark.parametrize("fields", [{"size": "1Gi"}, {"size": "1Gi", "medium": "Memory"}])
def test_a_volume_of_the_users_is_not_shaped(fields: dict) -> None:
    spec = local(
        trainer={"volumeMounts": [{"name": "v", "mountPath": "/checkpoints"}]},
        pod={"volumes": [{"name": "v", "emptyDir": {}}]},
        **fields,
    )
    refusal = refusal_of(spec, owner=OWNER)
    assert refusal is not None
    assert "mounts volume v at /checkpoints" in refusal.message
    assert "State sizeLimit and medium in that volume" in refusal.message


def test_what_the_sidecar_is_told() -> None:
    told = config_of(a_pod(local(keep=5, maxRestoreBytes="500Gi")))
    assert (told["keepLocal"], told["maxRestoreBytes"]) == (5, 500 * GIB)
    told = config_of(a_pod(local()))
    assert "keepLocal" not in told
    assert "maxRestoreBytes" not in told
