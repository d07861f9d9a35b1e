"""The whole damage corpus, one declarative table."""

from __future__ import annotations

from damage import general
from damage.case import Case

CASES: tuple[Case, ...] = (*general.cases(),)
