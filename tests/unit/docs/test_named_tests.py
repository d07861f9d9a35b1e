"""Pages that name tests name such as exist."""

from __future__ import annotations

from kit.laws import LAWS
from kit.named_tests import files_of_tests
from kit.reports import REPORTS


def test_every_report_has_tests_that_exist() -> None:
    known = files_of_tests()
    for report in REPORTS:
        assert report.tests, report.where
        assert set(report.tests) <= set(known), f"{report.where}: {set(report.tests) - set(known)}"


def test_every_law_has_a_check_and_tests_that_exist() -> None:
    known = files_of_tests()
    for law in LAWS:
        assert law.checks, law.law
        assert set(law.tests) <= set(known), f"{law.law}: {set(law.tests) - set(known)}"


def test_no_symptom_is_told_twice() -> None:
    symptoms = [(report.where, report.symptom) for report in REPORTS]
    assert len(set(symptoms)) == len(symptoms)
