"""Print what the changelog says about this release: the text of the release's page.

Needs nothing but Python and `PYTHONPATH=crds`, for the job that publishes has no set-up. Must
never print another release's words.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rtj_api.version import RELEASE

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def section(text: str, *, release: str) -> str | None:
    """The words under `## release`, without the heading; None where there are none."""
    found = re.search(rf"^## {re.escape(release)}(?![\w.-]).*\n((?:(?!## ).*\n?)*)", text, re.M)
    return (found[1].strip() or None) if found else None


if __name__ == "__main__":
    words = section(CHANGELOG.read_text(encoding="utf-8"), release=RELEASE)
    if words is None:
        sys.exit(f"{CHANGELOG.name} has no words under `## {RELEASE}`: write what users must know")
    print(words)
