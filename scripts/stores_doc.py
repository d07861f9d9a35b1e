"""Write `docs/stores.md`: which stores there are, from `rtj_api.stores`.

`--check` writes nothing and fails when the page is not what the code knows.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pages import write_or_check
from rtj_api.stores import SCHEMES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "stores.md"
TEXT = Path(__file__).resolve().parent / "stores_doc.md"


def page() -> str:
    """The text beside this script, its three tables filled in."""
    kinds = ["| url | endpoint | without a Secret |", "|---|---|---|"]
    asked = ["| store | only if absent | only if still what was read | what proves an upload |"]
    asked.append("|---|---|---|---|")
    keys = ["| store | key of the Secret | what it holds |", "|---|---|---|"]
    for scheme in SCHEMES:
        kinds.append(f"| `{scheme.example}` | {scheme.endpoint or '-'} | {scheme.without} |")
        asked.append(f"| {scheme.name} | {scheme.create} | {scheme.replace} | {scheme.proof} |")
        keys += [f"| {scheme.name} | `{key.name}` | {key.holds} |" for key in scheme.keys]
    text = TEXT.read_text(encoding="utf-8")
    for name, table in (("KINDS", kinds), ("ASKED", asked), ("KEYS", keys)):
        text = text.replace(f"@{name}@", "\n".join(table))
    return text


def main(arguments: list[str] | None = None) -> int:
    return write_or_check(PAGE, page(), source="the code knows", arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
