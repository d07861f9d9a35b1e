"""What `make scan` says of scanners' words: a finding, nothing found, or nothing known."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "scan.py"


@pytest.fixture
def scan(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("scan", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "scan", made)
    spec.loader.exec_module(made)
    return made


def packages(*told: dict[str, Any]) -> str:
    return json.dumps({"dependencies": list(told)})


CLEAN = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


def test_a_vulnerable_package_is_named(scan: ModuleType) -> None:
    assert scan.vulnerable(packages(CLEAN), error="", name="x") == []
    [found] = scan.vulnerable(packages(CLEAN, BAD), error="", name="x")
    assert "b 2: CVE-1" in found


@pytest.mark.parametrize("text", [packages(CLEAN, UNKNOWN), packages(), "", "{}"])
def test_what_is_not_known_is_not_clean(scan: ModuleType, text: str) -> None:
    with pytest.raises(scan.CannotRun):
        scan.vulnerable(text, error="no network", name="x")


def test_checkov_that_checked_nothing_did_not_run(scan: ModuleType) -> None:
    with pytest.raises(scan.CannotRun):
        scan.failed_checks('{"passed": 0, "failed": 0}', what="the chart")
    told = {"summary": {"passed": 3}, "results": {"failed_checks": [{"check_id": "X"}]}}
    assert scan.failed_checks(json.dumps(told), what="the chart") == [{"check_id": "X"}]


@pytest.mark.parametrize(
    ("strict", "finds", "code"), [(False, False, 0), (True, False, 1), (False, True, 1)]
)
def test_one_that_cannot_run_is_named_and_fails_only_where_asked(
    scan: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    strict: bool,
    finds: bool,
    code: int,
) -> None:
    def missing() -> Any:
        raise scan.CannotRun("no database")

    there = {"one": missing, "two": lambda: scan.Found(bad=("it",) if finds else ())}
    monkeypatch.setattr(scan, "SCANS", there)
    assert scan.main(["--strict"] if strict else []) == code
    said = capsys.readouterr().out
    assert "NOT RUN  one: no database" in said
    assert ("FOUND" in said) == finds
