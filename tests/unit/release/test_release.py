"""A release's number stands everywhere, its words are its own, and its archives hold no clock."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from rtj_api.version import RELEASE

ROOT = Path(__file__).resolve().parents[3]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_operator_says_the_release_without_being_installed() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "rtj_operator", "--version"], text=True, capture_output=True
    )
    assert told.stdout.strip() == RELEASE


@pytest.mark.parametrize("number", ["0.2.0", "1.0.0-rc.1", "10.11.12"])
def test_a_new_number_reaches_each_place(number: str) -> None:
    version = script("version")
    for name, before in version.PLACES.items():
        text, missing = version.written((ROOT / name).read_text(), before=before, release=number)
        assert missing == []
        found = re.findall(f"(?:{'|'.join(before)})({version.NUMBER})", text, re.M)
        assert set(found) == {number}, name
        again, _ = version.written(text, before=before, release=RELEASE)
        assert again == (ROOT / name).read_text()


def test_a_place_that_names_no_release_is_told() -> None:
    _, missing = script("version").written("nothing", before=("^version: ",), release="1.0.0")
    assert missing == ["^version: "]


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("0.2.0", "- two"),
        ("0.1.0", "- one\n\n### Changed\n- more"),
        ("0.1", None),
        ("0.3.0", None),
        ("0.4.0", None),
    ],
)
def test_the_changelog_gives_each_release_its_own_words(release: str, words: str | None) -> None:
    text = (
        "# C\n\n## 0.4.0\n\n## 0.2.0 (May)\n\n- two\n\n## 0.1.0\n\n- one\n\n### Changed\n- more\n"
    )
    assert script("changelog").section(text, release=release) == words


def test_this_release_has_words() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert script("changelog").section(text, release=RELEASE)


def test_the_chart_package_holds_one_time_and_every_template(tmp_path: Path) -> None:
    package = script("release").chart_package(tmp_path)
    with tarfile.open(package) as archive:
        members = archive.getmembers()
    assert {member.mtime for member in members} == {members[0].mtime}
    names = {member.name.partition("/")[2] for member in members}
    chart = ROOT / "charts" / "resumable-training-operator"
    assert {"Chart.yaml", "values.yaml", "values.schema.json"} < names
    assert names >= {f"templates/{path.name}" for path in (chart / "templates").glob("*.yaml")}


def test_a_wrong_tag_is_refused_by_name() -> None:
    release = script("release")
    with pytest.raises(release.NotSo, match=f"v9.9.9.*{re.escape(RELEASE)}"):
        release.tag_agrees("v9.9.9")
    assert release.tag_agrees(f"v{RELEASE}") == f"v{RELEASE}"


class TestWorkflow:
    text = (ROOT / ".github" / "workflows" / "release.yaml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]

    def test_each_job_names_its_rights(self) -> None:
        assert [name for name, job in self.jobs.items() if "permissions" not in job] == []

    def test_make_targets_and_scripts_exist(self) -> None:
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        asked = re.findall(r"\bmake ([a-z-]+)", self.text)
        assert set(asked) == {"release-check", "release-build", "scan"}
        assert set(asked) <= set(targets)
        scripts = re.findall(r"\bscripts/[a-z_.]+", self.text)
        assert scripts
        assert all((ROOT / name).exists() for name in scripts)

    def test_images_are_tagged_as_the_chart_asks_for_them(self) -> None:
        build = next(s for s in self.jobs["images"]["steps"] if s.get("id") == "build")
        assert build["with"]["tags"].endswith(":${{ env.RELEASE }}")
        assert "RELEASE=${GITHUB_REF_NAME#v}" in self.text
        parts = self.jobs["images"]["strategy"]["matrix"]["part"]
        stages = re.findall(r"AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.M)
        assert set(parts) < set(stages)

    def test_nothing_is_run_with_text_that_others_write(self) -> None:
        runs = [step["run"] for job in self.jobs.values() for step in job["steps"] if "run" in step]
        inside = re.findall(r"\$\{\{\s*([a-z_.A-Z]+)", "\n".join(runs))
        assert set(inside) <= {"vars.REGISTRY", "matrix.part"}  # both are the repository's own
