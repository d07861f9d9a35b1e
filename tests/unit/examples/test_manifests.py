"""The jobs that tests and people apply: what they say, and that the models can read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import manifests
from rtj_api import contract
from rtj_api.v1alpha1 import JobSpec

EXAMPLES = sorted((manifests.ROOT / "examples").glob("*/rtj.yaml"))


@pytest.fixture(autouse=True)
def _trainer_venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    monkeypatch.setenv("RTJ_TRAINER_VENV", str(tmp_path))


def made(**more: Any) -> dict[str, Any]:
    return manifests.ddp("gpt", store=manifests.store(endpoint="http://s3:1"), **more)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_use_only_fields_that_the_api_has(path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    assert manifest["apiVersion"] == contract.API_VERSION
    spec = JobSpec.model_validate(manifest["spec"])
    assert _below(manifest["spec"], spec.dump()) == []


@pytest.mark.parametrize(
    "path", sorted((manifests.ROOT / "examples").glob("*/train.py")), ids=lambda p: p.parent.name
)
def test_example_trainers_know_nothing_of_us(path: Path) -> None:
    text = path.read_text().lower()
    assert [word for word in ("rtj", "resumable", "sidecar", "operator") if word in text] == []


@pytest.mark.parametrize("build", [manifests.ddp, manifests.hf_trainer, manifests.counter])
def test_built_jobs_use_only_fields_that_the_api_has(build: Any) -> None:
    manifest = build("gpt", store=manifests.store(endpoint="http://s3:1"))
    spec = JobSpec.model_validate(manifest["spec"])
    assert _below(manifest["spec"], spec.dump()) == []
    assert manifests.trainer_of(manifest)["command"][0] == "python3"


def test_what_is_laid_over_wins_field_by_field() -> None:
    manifest = made(
        checkpoint={"onNoValid": "StartFromScratch"},
        recovery={"maxRestarts": 2},
        pod={"nodeSelector": {"kubernetes.io/hostname": "node-1"}, "volumes": []},
        spec={"suspend": True},
    )
    spec = manifest["spec"]
    assert spec["checkpoint"]["onNoValid"] == "StartFromScratch"
    assert spec["checkpoint"]["store"]["url"] == "s3://checkpoints"
    assert spec["recovery"] == {"maxRestarts": 2}
    assert spec["suspend"] is True
    assert spec["template"]["spec"]["volumes"] == []
    assert spec["template"]["spec"]["containers"]


def test_none_removes_a_field_and_the_base_is_left_alone() -> None:
    base = {"a": {"b": 1, "c": 2}}
    assert manifests.overlaid(base, {"a": {"b": None}}) == {"a": {"c": 2}}
    assert base == {"a": {"b": 1, "c": 2}}


def test_without_a_gpu_nothing_is_asked_for() -> None:
    assert "resources" not in manifests.trainer_of(made(gpus=0))
    assert manifests.trainer_of(made())["resources"] == {"limits": {"nvidia.com/gpu": 1}}


def _below(wanted: Any, kept: Any, path: str = "spec") -> list[str]:
    """Paths in `wanted` that the model dropped."""
    if isinstance(wanted, dict):
        gone = [f"{path}.{key}" for key in wanted if key not in kept]
        return gone + [
            found
            for key in wanted
            if key in kept
            for found in _below(wanted[key], kept[key], f"{path}.{key}")
        ]
    return []
