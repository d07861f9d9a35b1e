"""What the API offers is what the other parts have: no value that nothing implements."""

from __future__ import annotations

from rtj_api import wire
from rtj_api.reason_texts import TEXTS
from rtj_api.v1alpha1 import Framework, JobSpec, LayoutName
from rtj_operator.core import faults
from rtj_sidecar.checkpoints import layouts


def test_layouts_of_the_api_are_those_of_the_sidecar() -> None:
    has = {layouts.AUTO, layouts.GENERIC, *(found.name for found in layouts.specific_layouts())}
    assert set(LayoutName) == has


def test_defaults_that_both_the_api_and_the_sidecar_state_are_the_same() -> None:
    spec = JobSpec.model_validate(
        {"checkpoint": {"path": "/c", "store": {"url": "s3://b"}}, "template": {"spec": {}}}
    )
    config = wire.SidecarConfig.model_fields
    assert config["layout"].default == spec.checkpoint.layout
    assert config["mirror"].default == spec.checkpoint.local.mirror
    assert config["on_existing_run"].default == spec.checkpoint.on_existing_run
    assert config["drain_seconds"].default == spec.sidecar.drain_seconds
    assert config["keep_last"].default == spec.checkpoint.retention.keep_last
    assert list(Framework) == ["pytorch", "jax", "none"]


def test_the_documented_budget_is_the_one_that_is_charged() -> None:
    charged = faults.CHARGES
    assert charged
    assert {reason: TEXTS[reason].charge for reason in charged} == charged
