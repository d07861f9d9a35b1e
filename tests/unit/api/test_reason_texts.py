"""Every reason is explained, once, with a remedy; and the pages of docs/ are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtj_api import docgen
from rtj_api.reason_texts import SECTIONS, TEXTS
from rtj_api.reasons import Charge, Reason


def test_every_reason_has_exactly_one_row() -> None:
    rows = [reason for section in SECTIONS.values() for reason in section]
    assert sorted(rows) == sorted(Reason)


@pytest.mark.parametrize("reason", list(Reason))
def test_a_row_is_made_of_sentences(reason: Reason) -> None:
    text = TEXTS[reason]
    for part in (text.meaning, text.remedy):
        assert len(part) > 10
        assert part.endswith(".")


def test_every_cause_says_whose_budget_it_uses() -> None:
    causes = SECTIONS["Causes of an attempt"]
    assert [reason for reason, text in causes.items() if text.charge is Charge.NONE] == []


@pytest.mark.parametrize(
    "reason",
    [Reason.NODE_LOST, Reason.POD_EVICTED, Reason.POD_DELETED, Reason.POD_PREEMPTED],
)
def test_infrastructure_never_uses_the_users_budget(reason: Reason) -> None:
    assert TEXTS[reason].charge is Charge.INFRASTRUCTURE


def test_the_pages_in_the_tree_are_what_the_code_says() -> None:
    assert docgen.main(["--check"]) == 0


def test_check_fails_on_a_page_that_drifted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert docgen.main(["--output", str(tmp_path)]) == 0
    assert docgen.main(["--check", "--output", str(tmp_path)]) == 0
    page = tmp_path / "reasons.md"
    page.write_text(page.read_text() + "\nA remark by hand.\n")
    assert docgen.main(["--check", "--output", str(tmp_path)]) == 1
    assert "reasons.md" in capsys.readouterr().err


def test_no_cell_breaks_its_table() -> None:
    for page in docgen.PAGES.values():
        widths: set[int] = set()
        for line in page().splitlines():
            if not line.startswith("|"):
                widths.clear()
                continue
            widths.add(line.replace("\\|", "").count("|"))
            assert len(widths) == 1, line
