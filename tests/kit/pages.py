"""The pages that people read: their links, their anchors, and the code blocks in them.

Reads files only; what a command means is asked of its own tool in `kit.page_commands`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "examples" / "README.md"])

_FENCE = re.compile(
    r"(?P<before>(?:^[^\n]*\n)?)^(?P<indent> *)```(?P<language>[a-z]*)[^\n]*\n"
    r"(?P<body>.*?)^(?P=indent)```[ ]*$",
    flags=re.MULTILINE | re.DOTALL,
)
_RUN_BY = re.compile(r"^<!-- run by (\S+) -->$", flags=re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """One code block. `run_by`: the test that runs it, where the line before it names one."""

    page: Path
    language: str
    body: str
    run_by: str | None


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(page: Path) -> Iterator[Fence]:
    for found in _FENCE.finditer(page.read_text(encoding="utf-8")):
        marker = _RUN_BY.search(found["before"])
        yield Fence(
            page=page,
            language=found["language"],
            body=textwrap.dedent(found["body"]),
            run_by=marker[1] if marker else None,
        )


def prose(page: Path) -> str:
    """The page without its code blocks and without what stands in backticks."""
    text = re.sub(r"^( *)```.*?^\1```[ ]*$", "", page.read_text("utf-8"), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", lambda code: "`" + "x" * (len(code[0]) - 2) + "`", text)


def links(page: Path) -> list[str]:
    """Targets of the links and pictures of a page."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def anchors(page: Path) -> set[str]:
    """Names by which a link reaches the page's headings, as code hosts and the site make them."""
    text = re.sub(r"^( *)```.*?^\1```[ ]*$", "", page.read_text("utf-8"), flags=re.M | re.S)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", text, flags=re.MULTILINE):
        name = slug(heading)
        # A second heading of the same words is numbered, and differently so by each: unreachable.
        found.add(name)
    return found


def slug(heading: str) -> str:
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
