"""The counter, with a worker that the kernel kills for memory once step 10 is saved.

Like a data loader, the worker is a process of its own, and its end is the trainer's: exit code 1.
Only a start without `--resume` has the worker, so the run goes on after the fault. Arguments are
the counter's.
"""

import os
import runpy
import subprocess
import sys
import threading
import time
from pathlib import Path

EAT = "blocks = []\nwhile True: blocks.append(bytearray(b'x' * (8 << 20)))"


def worker(out: Path) -> None:
    while not (out / "step_0000010.pt").exists():
        time.sleep(0.05)
    code = subprocess.run([sys.executable, "-S", "-c", EAT], check=False).returncode
    print(f"a worker ended with {code}", file=sys.stderr, flush=True)
    os._exit(1)


def main() -> None:
    out = Path(sys.argv[sys.argv.index("--out") + 1])
    if "--resume" not in sys.argv:
        threading.Thread(target=worker, args=(out,), daemon=True).start()
    sys.argv[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "counter.py")
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
