"""The whole damage corpus, one declarative table."""

from __future__ import annotations

from damage import general, hostile, moments, saves
from damage.case import Case

CASES: tuple[Case, ...] = (*saves.CASES, *moments.CASES, *hostile.CASES, *general.cases())
