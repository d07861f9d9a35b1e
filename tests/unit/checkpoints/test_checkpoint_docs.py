"""docs/checkpoints.md names every reason and verdict that the code has."""

from __future__ import annotations

from pathlib import Path

from rtj_sidecar.checkpoints.types import Gate, Reason, Status

DOC = Path(__file__).parents[3] / "docs" / "checkpoints.md"


def test_the_page_is_complete() -> None:
    text = DOC.read_text()
    names = [reason.value for reason in Reason if reason is not Reason.OK]
    names += [status.value for status in Status]
    assert [name for name in names if f"`{name}`" not in text] == []
    assert [gate.value for gate in Gate if f"**{gate.value}**" not in text] == []
