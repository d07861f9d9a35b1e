"""One look at a directory of checkpoints, and what is expected of a torn one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rtj_sidecar.checkpoints.inspect import inspect_path
from rtj_sidecar.checkpoints.types import FoundSave, Reason, Status, Verdict

Fresh = Callable[[str], Path]


def look(root: Path, **options: object) -> dict[str, tuple[FoundSave, Verdict]]:
    found = inspect_path(root, **options)  # type: ignore[arg-type]
    return {save.root_key: (save, verdict) for save, verdict in found}


def expect_torn(root: Path, key: str, reason: Reason, *words: str, **options: object) -> None:
    verdict = look(root, **options)[key][1]
    assert (verdict.status, verdict.reason) == (Status.TORN, reason), verdict.message
    assert not verdict.candidate
    for word in words:
        assert word in verdict.message
