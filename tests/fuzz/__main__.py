"""Fuzz every reader of a checkpoint's bytes, guided by coverage: `python -m fuzz --seconds 600`.

One process with atheris (libFuzzer), started by `make fuzz`. The corpus is kept outside the tree;
an input that breaks a reader is printed as a line for `found.txt`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["rtj_sidecar.checkpoints.formats"]):
    from fuzz.readers import READERS, try_one
from fuzz.seeds import found, seeds

NAMES = tuple(READERS)
LONGEST = 16384


def one(data: bytes) -> None:
    if not data:
        return
    name, content = NAMES[data[0] % len(NAMES)], data[1:]
    try:
        try_one(name, content)
    except BaseException:
        print(f"FOUND {name} {content.hex()}", flush=True)
        raise


def main() -> None:
    options = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--corpus", type=Path, required=True, help="a directory that is kept")
    chosen = options.parse_args()
    chosen.corpus.mkdir(parents=True, exist_ok=True)
    for at, (name, content) in enumerate([*seeds(), *found()]):
        place = chosen.corpus / f"seed-{at:03d}-{name}"
        place.write_bytes(bytes([NAMES.index(name)]) + content)
    limits = ["-timeout=20", "-rss_limit_mb=1500", f"-max_len={LONGEST}"]
    artefacts = f"-artifact_prefix={chosen.corpus}/../broke-"
    total = f"-max_total_time={chosen.seconds}"
    atheris.Setup([sys.argv[0], str(chosen.corpus), *limits, artefacts, total], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
