"""The pages name files, commands and pages that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit.pages import PAGES, ROOT, named

TOP = ("benchmarks", "charts", "cli", "crds", "devcluster", "docs", "examples", "operator")
TOP += ("scripts", "tests", "tools", "trainer_sidecar")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_paths_from_the_root_exist(page: Path) -> None:
    quoted = re.findall(r"`([A-Za-z0-9_./*-]+)`", page.read_text(encoding="utf-8"))
    paths = [path for path in quoted if path.split("/")[0] in TOP and "/" in path]
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_tests_named_as_proof_exist(page: Path) -> None:
    found = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8"))
    gone = [
        f"{path}::{name}"
        for path, name in found
        if not (ROOT / path).is_file()
        or not re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), flags=re.M)
    ]
    assert gone == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"`make ([a-z0-9-]+)`", page.read_text(encoding="utf-8")))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([a-z0-9 -]+):(?!=)", makefile, flags=re.MULTILINE)
    assert targets - {name for rule in rules for name in rule.split()} == set()


@pytest.mark.parametrize(
    ("page", "below"),
    [
        ("life-of-an-event.md", ("operator/rtj_operator", "trainer_sidecar/rtj_sidecar")),
        ("repository-map.md", ("operator/rtj_operator", "trainer_sidecar/rtj_sidecar")),
    ],
)
def test_modules_named_by_their_place_in_a_package_exist(page: str, below: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    folders = "core|shell|checkpoints|runs|stores|trainer"
    named = set(re.findall(rf"\b((?:{folders})/[a-z0-9_*]+\.py)", text))
    assert named
    gone = [path for path in named if not any(list((ROOT / place).glob(path)) for place in below)]
    assert gone == []
