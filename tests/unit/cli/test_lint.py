"""`rtj lint` says what the API server says; the contract tests hold both against the same cases."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.crd_cases import CASES
from kit.crd_jobs import job
from kit.podlike import ENVIRONMENT
from rtj_api.validations import ALL_RULES
from rtj_cli.lint.cel import CelError, CelSyntax, compiled
from rtj_cli.lint.linting import job_faults, lint

ROOT = Path(__file__).parents[3]
Rtj = Callable[..., Any]


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.name)
def test_every_rule_can_be_asked_here(rule: Any) -> None:
    assert compiled(rule.rule) is not None


@pytest.mark.parametrize("name", CASES)
def test_each_rule_takes_and_refuses_as_on_the_server(name: str) -> None:
    case = CASES[name]
    for taken in case.takes:
        assert job_faults(taken) == []
    for refused in case.refuses:
        told = [fault.message for fault in job_faults(refused)]
        assert any(case.says in message for message in told), told


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("1 + 2 * 3 == 7 && !(2 > 3)", True),
        ("self.a > 1 ? self.b == 'x' : false", True),
        ("has(self.c) || self.a == 2", True),
        ("self.missing == 1 || true", True),
        ("false && self.missing == 1", False),
        ("self.list.all(x, x > 0) && self.list.exists(x, x == 3)", True),
        ("self.list.exists_one(x, x == 3) && size(self.list.filter(x, x > 1)) == 2", True),
        ("self.list.map(x, x + 1) == [2, 3, 4]", True),
        ("'a/b'.split('/')[1] == 'b' && 'abc'.substring(1, 2) == 'b'", True),
        ("'abc'.substring(1) == 'bc' && 'it\\'s'.contains('\\'')", True),
        ("quantity('1Mi').compareTo(quantity('1M')) > 0", True),
        ("type(self.b) == string && 'b' in self", True),
        ("-1 < 0 && 5 % 2 == 1", True),
    ],
)
def test_the_language(rule: str, holds: bool) -> None:
    assert compiled(rule)({"self": {"a": 2, "b": "x", "list": [1, 2, 3]}}) is holds


def test_what_cannot_be_asked_is_said() -> None:
    for wrong in ("self.", "1 +", "nothing(1)", "(1", "a b", "'x", "[1"):
        with pytest.raises(CelSyntax):
            compiled(wrong)
    for wrong in ("self.a", "self + 1", "!3", "x", "quantity('x')", "[1][2] == 1"):
        with pytest.raises(CelError):
            compiled(wrong)({"self": {}})


def manifest(**spec: Any) -> str:
    return yaml.safe_dump(job(**spec), sort_keys=False)


def test_the_line_of_the_field_is_told(rtj: Rtj, tmp_path: Path) -> None:
    text = manifest(replicas=0, framwork="jax", checkpoint={"path": "/c"}, recovery={"spares": "x"})
    path = tmp_path / "job.yaml"
    path.write_text(text)
    rows = text.splitlines()
    said = rtj("lint", path, code=1)
    for field, words in (
        ("replicas", "at least 1, not 0"),
        ("framwork", "did you mean framework?"),
        ("spares", "a whole number"),
    ):
        line = next(n for n, row in enumerate(rows, start=1) if row.strip().startswith(f"{field}:"))
        (found,) = [each for each in said.out.splitlines() if field in each]
        assert found.startswith(f"{path}:{line}: spec."), found
        assert words in found
    (first, *_) = json.loads(rtj("lint", path, "-o", "json", code=1).out)
    assert set(first) == {"file", "line", "name", "field", "message"}


def test_a_missing_field_is_told_at_its_object(tmp_path: Path) -> None:
    finding, *_ = lint(
        "apiVersion: resumable-training.dev/v1alpha1\n"
        "kind: ResumableTrainingJob\nmetadata: {name: a}\n"
        "spec:\n  template: {spec: {containers: []}}\n",
        file="a.yaml",
    ).findings
    assert (finding.line, finding.field) == (4, "spec")
    assert "checkpoint is required" in finding.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1\n", "no YAML"),
        ("kind: ResumableTrainingJob\napiVersion: v1\nmetadata: {name: a}\n", "must be resumable"),
        (manifest() + "status: {}\nstatus: {}\n", "stands twice"),
        (manifest().replace("name: gpt", "name: Gpt_1"), "is no name"),
        (manifest(checkpoint={"path": "/replace-with-a-path"}), "not filled in yet"),
    ],
)
def test_what_else_is_refused(text: str, words: str) -> None:
    assert any(words in str(finding) for finding in lint(text, file="a").findings)


def test_many_documents_lists_and_foreign_kinds(rtj: Rtj, tmp_path: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [job(), job(replicas=-1)]}
    text = "---\n".join([manifest(), "kind: Service\n", yaml.safe_dump(listed)])
    (tmp_path / "all.yaml").write_text(text)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "good.yml").write_text(manifest())
    (tmp_path / "notes.txt").write_text("not: [yaml")
    said = rtj("lint", tmp_path, code=1)
    assert said.out.count("\n") == 1
    assert "4 jobs" in said.words
    (tmp_path / "all.yaml").unlink()
    assert "1 job" in rtj("lint", tmp_path).words
    (tmp_path / "sub" / "good.yml").unlink()
    rtj("lint", tmp_path, code=3)
    rtj("lint", tmp_path / "nowhere", code=3)


def test_the_examples_are_good(rtj: Rtj) -> None:
    assert "job" in rtj("lint", ROOT / "examples").words


HELM = """#!/bin/sh
[ "$1" = template ] || exit 9
cat <<'END'
---
# Source: chart/templates/job.yaml
END
sed 's/^replicas.*//' $(dirname $0)/rendered.yaml
"""


def test_a_chart_is_rendered_by_helm(
    rtj: Rtj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("name: chart\n")
    (chart / "templates" / "job.yaml").write_text("{{ not yaml }}")
    (tmp_path / "rendered.yaml").write_text(manifest(replicas=-3))
    helm = tmp_path / "helm"
    helm.write_text(HELM)
    helm.chmod(0o755)
    monkeypatch.setenv("HELM", str(helm))
    assert "(chart/templates/job.yaml):" in rtj("lint", tmp_path, code=1).out
    monkeypatch.setenv("HELM", "no-such-helm")
    assert "helm template" in rtj("lint", chart, code=2).words


def test_stdin(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rtj_cli", "lint", "-"],
        input=manifest(replicas=0),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "<stdin>:" in done.stdout
