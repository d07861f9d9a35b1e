"""Write the release's number wherever a reader or a tool needs it as text; `--check` only compares.

The number stands in `crds/rtj_api/version.py`. Must never write a number that is not there, and
must fail where a place that should name it does not.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from rtj_api.version import RELEASE

ROOT = Path(__file__).resolve().parents[1]
CHART = "charts/resumable-training-operator/Chart.yaml"
NUMBER = r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]*[0-9A-Za-z])?"
# file -> what stands before each number that is the release's
PLACES = {
    CHART: (r"^version: ", r"^appVersion: "),
    "Dockerfile": (r"resumable-training-(?:operator|sidecar):",),
    "README.md": (r"resumable-training-\$part:",),
    "trainer_library/rtj_trainer/version.py": (r"^RELEASE = \"",),
}


def written(text: str, *, before: tuple[str, ...], release: str) -> tuple[str, list[str]]:
    """`text` with the release's number behind each of `before`, and those that stand nowhere."""
    missing = []
    for start in before:
        text, count = re.subn(f"({start}){NUMBER}", rf"\g<1>{release}", text, flags=re.MULTILINE)
        missing += [] if count else [start]
    return text, missing


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/version.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    check = parser.parse_args(arguments).check
    failed = 0
    for name, before in PLACES.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        wanted, missing = written(text, before=before, release=RELEASE)
        for start in missing:
            print(
                f"{name}: no number behind {start!r}: mend it or scripts/version.py",
                file=sys.stderr,
            )
            failed = 1
        if wanted != text and check:
            print(
                f"{name} names another release than {RELEASE}: run `make generate`", file=sys.stderr
            )
            failed = 1
        elif wanted != text:
            path.write_text(wanted, encoding="utf-8")
            print(f"wrote {path}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
