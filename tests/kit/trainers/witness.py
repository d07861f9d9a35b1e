"""A trainer that keeps a journal of what it wrote, and in which attempt: for shared directories.

It counts like `counter`, every rank for itself, and every rank saves: `step_<n>_rank<r>.pt`. It
finds its own newest file by itself, as many frameworks do, so a file that should not be there is a
file that it resumes from. Each start and each save is a line `<time> <word> <step>` in
`<journal>/<attempt>-<rank>.txt`, flushed to the disk. It ends well once `--end-when` exists.
"""

import argparse
import hashlib
import os
import time
from pathlib import Path

from counter import next_state, read_checkpoint, write_checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--end-when", type=Path, required=True)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--save-every", type=int, default=5)
    args = parser.parse_args()
    rank, attempt = os.environ["RANK"], os.environ["RTJ_ATTEMPT"]
    args.out.mkdir(parents=True, exist_ok=True)
    args.journal.mkdir(parents=True, exist_ok=True)

    with (args.journal / f"{attempt}-{rank}.txt").open("a") as journal:

        def note(word: str, step: int) -> None:
            journal.write(f"{time.time():.6f} {word} {step}\n")
            journal.flush()
            os.fsync(journal.fileno())

        found = sorted(args.out.glob(f"step_*_rank{rank}.pt"))
        step, state = read_checkpoint(found[-1]) if found else (0, 1)
        note("START", step)
        print(f"START {step}", flush=True)
        while step % args.save_every or not args.end_when.exists():
            time.sleep(args.step_seconds)
            step += 1
            state = next_state(state, step)
            print(f"STEP {step} {time.time():.6f}", flush=True)
            if step % args.save_every == 0:
                path = args.out / f"step_{step:07d}_rank{rank}.pt"
                write_checkpoint(path, step=step, state=state, floats=16)
                note("SAVED", step)
        digest = hashlib.sha256(str(state).encode()).hexdigest()
        note(f"DONE-{digest}", step)
        print(f"DONE {step} {digest}", flush=True)


if __name__ == "__main__":
    main()
