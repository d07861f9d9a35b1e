"""The frame of a script that writes one generated page, or with `--check` only compares it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def write_or_check(page: Path, text: str, *, source: str, arguments: list[str] | None) -> int:
    """Exit code: 1 where `--check` finds another text than `text`. `source`: what it is made of."""
    script = f"scripts/{Path(sys.argv[0]).name}"
    parser = argparse.ArgumentParser(prog=script)
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    check = parser.parse_args(arguments).check
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    if check:
        print(f"{page} is not what {source}: run `python {script}`", file=sys.stderr)
        return 1
    page.write_text(text, encoding="utf-8")
    print(f"wrote {page}")
    return 0
