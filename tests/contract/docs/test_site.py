"""mkdocs itself builds the site, and takes a broken link, anchor or forgotten page for a failure.

Here and not in the unit tier: its environment is 160 MB, which only `setup all` installs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kit import tools
from kit.pages import ROOT


def build(root: Path, *, into: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tools.mkdocs(), "build", "--strict", "--site-dir", into],
        cwd=root,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def test_it_is_built_without_a_warning(tmp_path: Path) -> None:
    done = build(ROOT, into=tmp_path)
    assert done.returncode == 0, done.stderr
    runbook = (tmp_path / "runbooks" / "TrainingJobFailed" / "index.html").read_text()
    assert 'id="mitigation"' in runbook
    assert 'class="mermaid"' in (tmp_path / "sidecar" / "index.html").read_text()


MISTAKES = [
    ("runs.md", "[gone](nowhere.md)"),
    ("values.md", "[gone](install.md#no-such-heading)"),
    ("forgotten.md", "# In no menu"),
]


def test_each_mistake_fails_the_build(copied: Path) -> None:
    for page, text in MISTAKES:
        with (copied / "docs" / page).open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")
    done = build(copied, into=copied / "site")
    assert done.returncode != 0
    warned = [text for text in done.stderr.split("\n") if text.startswith("WARNING")]
    assert len(warned) == len(MISTAKES), done.stderr
    for page, _ in MISTAKES:
        assert page in done.stderr
