"""A command in this process: its output apart from its words, and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.stub_kubectl import StubKubectl
from rtj_cli.__main__ import assembled
from typer.testing import CliRunner


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    words: str


@pytest.fixture
def rtj(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    monkeypatch.setenv("COLUMNS", "400")

    def call(*words: object, code: int = 0) -> Said:
        done = CliRunner().invoke(assembled(), [str(word) for word in words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        said = Said(done.exit_code, done.stdout, done.stderr)
        assert said.code == code, f"{said.out}\n{said.words}"
        return said

    return call


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubKubectl:
    directory = tmp_path / "cluster"
    directory.mkdir()
    stub = StubKubectl(directory)
    monkeypatch.setenv("KUBECTL", stub.install())
    return stub
