"""docs/decisions.md says what the rules do."""

from __future__ import annotations

from rtj_operator import decisions
from rtj_operator.core import judges
from rtj_operator.core.decide import RULES


def test_the_page_is_the_one_the_rules_write() -> None:
    assert decisions.main(["--check"]) == 0, "run `python -m rtj_operator.decisions`"


def test_a_stale_page_is_an_error(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    stale = tmp_path / "decisions.md"
    monkeypatch.setattr(decisions, "PAGE", stale)
    assert decisions.main(["--check"]) == 1
    assert "rtj_operator.decisions" in capsys.readouterr().err
    assert decisions.main([]) == 0
    assert decisions.main(["--check"]) == 0


def test_every_rule_judge_and_wait_explains_itself() -> None:
    for function in (*RULES, *judges.JUDGES):
        assert len(decisions.text_of(function)) > 30, function.__name__
    for name, value, comment in decisions.waits():
        assert comment, f"{name} = {value} has no comment"
