"""docs/migrating.md names what `rtj import-job` reads, and every field that it says to drop."""

from __future__ import annotations

import re

from kit.pages import DOCS, ROOT

PAGE = (DOCS / "migrating.md").read_text(encoding="utf-8")
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "cli/rtj_cli/converting").glob("*.py")
)


def test_each_field_of_the_tables_is_one_that_is_read() -> None:
    rows = re.findall(r"^\| (.+?) \| .+ \|$", PAGE, flags=re.MULTILINE)
    fields = {name for row in rows for name in re.findall(r"`([\w.-]+(?:/[\w-]+)?)`", row)}
    assert len(fields) > 30
    kinds = {name for name in fields if re.search(r"/v\d", name)}
    assert {name for name in fields - kinds if name not in SOURCES} == set()
    assert {name for name in kinds if f'"{name.split("/")[0]}/' not in SOURCES} == set()


def test_each_field_that_is_dropped_with_a_reason_is_on_the_page() -> None:
    dropped = set(re.findall(r'\.drop\(\s*"(\w+)"', SOURCES))
    known = {"metadata", "managedBy", "selector", "manualSelector", "podReplacementPolicy"}
    assert len(dropped) > 10
    assert {name for name in dropped - known if f"`{name}`" not in PAGE} == set()
