"""Write the dashboards as JSON into the chart: `python charts/dashboards/generate.py [--check]`.

The JSON is committed, for a user of the chart has no Python; `--check` fails when it is not what
the source says. Nothing else may write these files.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "resumable-training-operator" / "files" / "dashboards"
sys.path.insert(0, str(HERE))

import checkpoints  # noqa: E402
import fleet  # noqa: E402
import job  # noqa: E402
import operator_health  # noqa: E402


def rendered() -> dict[str, str]:
    """File name → text of every dashboard."""
    boards = [module.build() for module in (fleet, job, checkpoints, operator_health)]
    return {
        f"{board.uid}.json": json.dumps(board.dump(), indent=2, sort_keys=True) + "\n"
        for board in boards
    }


def drifted(folder: Path, wanted: dict[str, str]) -> set[str]:
    """Names of the files in `folder` that are not as wanted, not there, or not wanted."""
    there = {path.name: path.read_text() for path in folder.glob("*.json")}
    return {name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="charts/dashboards/generate.py")
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    check = parser.parse_args(arguments).check
    wanted = rendered()
    changed = drifted(OUT, wanted)
    if check and changed:
        names = ", ".join(sorted(changed))
        print(
            f"{names}: not what the source says: run charts/dashboards/generate.py", file=sys.stderr
        )
        return 1
    for name in sorted(changed):
        if name in wanted:
            (OUT / name).write_text(wanted[name])
        else:
            (OUT / name).unlink()
        print(f"wrote {OUT / name}" if name in wanted else f"removed {OUT / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
