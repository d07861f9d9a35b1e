"""What `rtj import-job` prints is taken by a real API server, questions open or answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from kit import foreign_jobs
from rtj_cli.converting.convert import Answers, convert

ANSWERED = Answers(path="/ckpt", store="s3://bucket/runs", credentials="s3")


@pytest.mark.parametrize("kind", foreign_jobs.ALL)
@pytest.mark.parametrize("answers", [Answers(), ANSWERED], ids=["open", "answered"])
def test_it_is_taken(kind: str, answers: Answers, refusal: Callable[[dict[str, Any]], str]) -> None:
    found = convert(yaml.safe_load(foreign_jobs.ALL[kind]), answers=answers)
    assert found is not None
    manifest = found.manifest
    manifest["metadata"].pop("namespace", None)
    assert refusal(manifest) == ""
