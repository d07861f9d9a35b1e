"""Copy into the chart what Helm cannot read outside of it: the generated CRD.

`python charts/sync.py` writes, `--check` only compares (exit 1 when they differ). It must never
change what it copies: the chart installs the very file that the API's tests have seen.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CHARTS = Path(__file__).resolve().parent
SOURCE = CHARTS.parent / "crds" / "resumabletrainingjobs.yaml"
COPY = CHARTS / "resumable-training-operator" / "files" / "crd.yaml"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="charts/sync.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    check = parser.parse_args(arguments).check
    if not SOURCE.exists():
        print(f"{SOURCE} is not there: run `python -m rtj_api.crdgen` first", file=sys.stderr)
        return 1
    wanted = SOURCE.read_bytes()
    if COPY.exists() and COPY.read_bytes() == wanted:
        return 0
    if check:
        print(f"{COPY} is not {SOURCE}: run `python charts/sync.py`", file=sys.stderr)
        return 1
    COPY.write_bytes(wanted)
    print(f"wrote {COPY}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
