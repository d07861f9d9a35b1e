"""The example without a framework: deterministic, and recognised by what its manifest includes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml
from kit.manifests import ROOT
from rtj_sidecar.checkpoints.inspect import inspect_path
from rtj_sidecar.checkpoints.types import Status

FOLDER = ROOT / "examples" / "plain-python"


def train(out: Path, *arguments: str) -> str:
    command = [sys.executable, str(FOLDER / "train.py"), "--out", str(out), "--steps", "100"]
    command += ["--step-seconds", "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()[-1]


def test_resumed_it_ends_as_an_uninterrupted_run(tmp_path: Path) -> None:
    whole = train(tmp_path)
    assert whole.startswith("final weights sha256 ")
    assert train(tmp_path, "--resume", str(tmp_path / "state_000050.json")) == whole
    assert train(tmp_path / "other", "--steps", "99") != whole


def test_its_files_are_checkpoints_by_the_manifests_include(tmp_path: Path) -> None:
    train(tmp_path)
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    checkpoint = yaml.safe_load((FOLDER / "rtj.yaml").read_text())["spec"]["checkpoint"]
    found = inspect_path(tmp_path, include=checkpoint["include"])
    assert [(save.root_key, save.step) for save, _ in found] == [
        ("state_000050.json", 50),
        ("state_000100.json", 100),
    ]
    assert all(verdict.candidate for _, verdict in found)
    torn = tmp_path / "state_000100.json"
    torn.write_text(torn.read_text()[:-5])
    after = {save.step: verdict for save, verdict in inspect_path(tmp_path, include=["state_*"])}
    assert after[50].candidate
    assert after[100].status is Status.TORN
