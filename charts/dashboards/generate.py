"""Write the dashboards as JSON into the chart: `python charts/dashboards/generate.py [--check]`.

The JSON is committed, for a user of the chart has no Python; `--check` fails when it is not what
the source says. Nothing else may write these files.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "resumable-training-operator" / "files" / "dashboards"
sys.path.insert(0, str(HERE))

import training_jobs  # noqa: E402


def rendered() -> dict[str, str]:
    """File name → text of every dashboard."""
    board = json.loads(json.dumps(training_jobs.build().build(), cls=JSONEncoder))
    board["annotations"] = {"list": [training_jobs.starts_annotation()]}
    return {"training-jobs.json": json.dumps(board, indent=2, sort_keys=True) + "\n"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="charts/dashboards/generate.py")
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    check = parser.parse_args(arguments).check
    wanted = rendered()
    stale = {path.name for path in OUT.glob("*.json")} - set(wanted)
    different = {
        name
        for name, text in wanted.items()
        if not (OUT / name).exists() or (OUT / name).read_text() != text
    }
    if check and (stale or different):
        names = ", ".join(sorted(stale | different))
        print(
            f"{names}: not what the source says: run charts/dashboards/generate.py", file=sys.stderr
        )
        return 1
    for name in stale:
        (OUT / name).unlink()
    for name in different:
        (OUT / name).write_text(wanted[name])
        print(f"wrote {OUT / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
