"""Jobs of other operators become ours, and nothing is lost without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kit import foreign_jobs
from rtj_cli.converting.convert import Answers, Converted, convert, text_of
from rtj_cli.lint.linting import job_faults, lint

Rtj = Callable[..., Any]
ANSWERS = Answers(path="/ckpt", store="s3://bucket/runs", credentials="s3")


def converted(kind: str, **answers: Any) -> Converted:
    found = convert(yaml.safe_load(foreign_jobs.ALL[kind]), answers=Answers(**answers))
    assert found is not None
    return found


@pytest.mark.parametrize("kind", foreign_jobs.ALL)
def test_once_it_is_answered_it_is_taken(kind: str) -> None:
    found = convert(yaml.safe_load(foreign_jobs.ALL[kind]), answers=ANSWERS)
    assert found is not None
    text = text_of(found)
    if kind == "Job":  # its image's own entry point is unknown
        assert [each.field for each in lint(text, file="a").findings] == [
            "spec.template.spec.containers[0].command[0]"
        ]
        text = text.replace("replace-with-the-command-of-the-image", "train")
    assert lint(text, file="a").findings == ()


@pytest.mark.parametrize("kind", foreign_jobs.ALL)
def test_what_is_open_is_marked_and_refused_by_lint_alone(kind: str) -> None:
    found = converted(kind)
    text = text_of(found)
    told = [fault.message for fault in job_faults(found.manifest)]
    assert told
    assert all("not filled in yet" in message for message in told)
    open_lines = [line for line in text.splitlines() if "replace-with-" in line]
    assert all(line.endswith("# to answer, see above") for line in open_lines)
    assert "# To answer before it is applied" in text
    assert yaml.safe_load(text) == found.manifest


def test_a_pytorch_job() -> None:
    found = converted("PyTorchJob")
    spec, told = found.manifest["spec"], "\n".join(found.notes.dropped)
    assert (spec["replicas"], spec["procsPerReplica"], spec["framework"]) == (4, 8, "pytorch")
    assert spec["checkpoint"]["path"] == "/data/out"
    assert spec["recovery"] == {"maxRestarts": 4}
    assert spec["scheduling"] == {"gang": "kueue", "queue": "team-a"}
    assert found.manifest["metadata"] == {
        "name": "gpt",
        "namespace": "team",
        "labels": {"owner": "nlp"},
    }
    assert [each["name"] for each in spec["template"]["spec"]["containers"][0]["env"]] == [
        "HF_HOME"
    ]
    for words in (
        "elasticPolicy",
        "cleanPodPolicy",
        "minAvailable",
        "MASTER_PORT",
        "restartPolicy",
    ):
        assert words in told, words
    assert "differs" not in told


def test_a_train_job() -> None:
    found = converted("TrainJob")
    spec = found.manifest["spec"]
    assert (spec["replicas"], spec["procsPerReplica"], spec["suspend"]) == (2, 4, True)
    assert spec["checkpoint"]["path"] == "/ckpt"
    told = "\n".join(found.notes.dropped)
    assert "spec.initializer: " in told
    assert "spec.podTemplateOverrides: " in told
    assert "kubectl get clustertrainingruntime torch-distributed" in "\n".join(
        found.notes.questions
    )


def test_a_job_set() -> None:
    found = converted("JobSet")
    spec = found.manifest["spec"]
    assert spec["replicas"] == 8
    assert spec["recovery"] == {"maxRestarts": 7}
    assert spec["scheduling"]["priorityClass"] == "high"
    names = [each["name"] for each in spec["template"]["spec"]["containers"]]
    assert names == ["trainer", "main"]
    questions = "\n".join(found.notes.questions)
    assert "does the container helper train?" in questions
    assert "does the replicated job workers train?" in questions
    told = "\n".join(found.notes.dropped)
    for words in ("replicatedJobs[driver]", "network", "successPolicy", "subdomain"):
        assert words in told, words


def test_a_job() -> None:
    found = converted("Job")
    spec = found.manifest["spec"]
    assert found.manifest["metadata"]["name"] == "small-model"
    assert (spec["replicas"], spec["framework"], spec["activeDeadlineSeconds"]) == (1, "none", 3600)
    assert spec["template"]["spec"]["priorityClassName"] == "low"
    assert "podFailurePolicy" in "\n".join(found.notes.dropped)


def leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, f"{path}.{key}")
    elif isinstance(data, list):
        for value in data:
            yield from leaves(value, path)
    else:
        yield path, data


@pytest.mark.parametrize("kind", foreign_jobs.ALL)
@given(where=st.integers(0, 6), name=st.from_regex(r"\Azz[a-z]{3,8}\Z"))
def test_a_field_that_is_not_known_is_told_or_kept(kind: str, where: int, name: str) -> None:
    data = yaml.safe_load(foreign_jobs.ALL[kind])
    places = list(objects(data["spec"]))
    places[where % len(places)][name] = "a-value"
    found = convert(data, answers=ANSWERS)
    assert found is not None
    kept = any(path.endswith(f".{name}") for path, _ in leaves(found.manifest))
    told = "\n".join([*found.notes.dropped, *found.notes.questions])
    parents = ("elasticPolicy", "initializer", "podTemplateOverrides", "driver", "podFailurePolicy")
    assert kept or name in told or any(each in told for each in parents)


def objects(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        yield data
        for value in data.values():
            yield from objects(value)
    elif isinstance(data, list):
        for value in data:
            yield from objects(value)


def test_the_command(rtj: Rtj, tmp_path: Any) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("---".join([*foreign_jobs.ALL.values(), "\nkind: Service\napiVersion: v1\n"]))
    said = rtj("import-job", path, "--path", "/c", "--store", "s3://b/p", "--credentials", "s3")
    found = list(yaml.safe_load_all(said.out))
    assert [each["metadata"]["name"] for each in found] == ["gpt", "bert", "vit", "small-model"]
    assert "left alone: Service" in said.words
    path.write_text("kind: Service\napiVersion: v1\n")
    rtj("import-job", path, code=3)
    path.write_text("a: [")
    rtj("import-job", path, code=2)
    rtj("import-job", tmp_path / "nowhere", code=3)
