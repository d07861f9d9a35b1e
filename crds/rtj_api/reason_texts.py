"""What each reason means, what a person can do, and whose budget it uses.

The one table behind `docs/reasons.md`, the events and the restart budget. Every Reason has
exactly one row; a test fails where one is missing. Must never do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rtj_api.reason_sections.bad_input import BAD_INPUT
from rtj_api.reason_sections.causes import CAUSES
from rtj_api.reason_sections.holds import HOLDS
from rtj_api.reason_sections.life import LIFE
from rtj_api.reason_sections.sidecar import SIDECAR
from rtj_api.reasons import Reason, ReasonText

SECTIONS: Final[Mapping[str, Mapping[Reason, ReasonText]]] = MappingProxyType(
    {
        "Life of a job": LIFE,
        "Causes of an attempt": CAUSES,
        "Why a job is held": HOLDS,
        "Bad input": BAD_INPUT,
        "Checkpoints and sidecar": SIDECAR,
    }
)
"""The table in the order that the documentation prints it."""

TEXTS: Final[Mapping[Reason, ReasonText]] = MappingProxyType(
    {reason: text for section in SECTIONS.values() for reason, text in section.items()}
)
