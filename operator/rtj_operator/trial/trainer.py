"""The trial's trainer: two steps, a save after each; after the first it waits to be killed.

Standard library only, for it runs in the sidecar's image. Without a store of the user's it kills
itself with SIGKILL once its first save is whole in the pod's own store; else its pod is deleted.
It must never get to step 2 without a checkpoint: then it ends with an error, and the trial fails.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path

PATIENCE_SECONDS = 120


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--store", type=Path, help="die once this directory holds the save")
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args()
    if args.resume:
        step, total = json.loads(args.resume.read_text()).values()
        print(f"goes on from step {step}", flush=True)
    elif os.environ.get("RTJ_ATTEMPT", "1") != "1":
        raise SystemExit("started again without a checkpoint")
    else:
        step, total = 0, 0

    step, total = step + 1, total + step + 1
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"state_{step}.json").write_text(json.dumps({"step": step, "total": total}))
    print(f"step {step} saved", flush=True)
    if step == 2:
        raise SystemExit(0 if total == 3 else f"1 + 2 is 3, and not {total}")

    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if args.store and any(args.store.rglob("manifests/*.json")):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)
    raise SystemExit(f"nobody has killed it in {PATIENCE_SECONDS} s")


if __name__ == "__main__":
    main()
