"""`inspect_path` reads each byte of a save once, from wherever it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.handmade import dcp_directory, torch_file
from rtj_sidecar.checkpoints.formats.base import Window
from rtj_sidecar.checkpoints.inspect import inspect_path

PAYLOAD = 1 << 20


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the ranges whose checksum was taken."""
    lengths: list[int] = []
    crc32 = Window.crc32

    def counted(self: Window, offset: int, length: int, buffer: bytearray) -> int:
        lengths.append(length)
        return crc32(self, offset, length, buffer)

    monkeypatch.setattr(Window, "crc32", counted)
    return lengths


@pytest.mark.parametrize("at", [".", "step_7.pt"])
def test_each_byte_of_a_file_is_read_once(tmp_path: Path, checked: list[int], at: str) -> None:
    torch_file(tmp_path / "run/step_7.pt", {"step": 7}, payload=PAYLOAD)
    ((save, verdict),) = inspect_path(tmp_path / "run" / at)
    assert (save.root_key, verdict.candidate) == ("step_7.pt", True)
    assert PAYLOAD <= sum(checked) < 2 * PAYLOAD


@pytest.mark.parametrize("at", [".", "step-7"])
def test_each_byte_of_a_directory_is_read_once(tmp_path: Path, checked: list[int], at: str) -> None:
    """That it is one save by its own name is seen from above only."""
    dcp_directory(tmp_path / "run/step-7", {"w": None}, payload=PAYLOAD)
    ((save, verdict),) = inspect_path(tmp_path / "run" / at)
    assert (save.root_key, verdict.candidate) == ("step-7", True)
    size = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert size / 2 < sum(checked) < size
