"""A trainer of the standard library alone, as a person would write one: it saves and resumes.

    python toy_trainer.py --dir DIR --steps N --every K [--step-seconds S] [--resume PATH]

With `--limit FILE` it makes no step beyond the number in that file, until there is a higher one.

Its state depends on every step taken, so a lost or repeated step shows in the result. Its
checkpoints have the container of `torch.save`: real torch loads them (see test_toy_trainer.py).
"""

from __future__ import annotations

import argparse
import io
import os
import pickle
import sys
import time
import zipfile
from pathlib import Path


def save(path: Path, state: dict, *, in_place: bool = False) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", state["model"]["weight"])
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/.data/serialization_id", f"{state['step']:040d}")
    temporary = path if in_place else path.with_name(f".tmp-{path.name}")
    with open(temporary, "wb") as file:
        file.write(content.getvalue())
        file.flush()
        os.fsync(file.fileno())
    if not in_place:
        os.rename(temporary, path)


def load(path: Path) -> dict:
    with zipfile.ZipFile(path) as archive:
        return pickle.loads(archive.read("archive/data.pkl"))


def wait_for_leave(limit: Path | None, *, step: int) -> None:
    """Until the number in the file lets this step be made."""
    while limit is not None and step > int(limit.read_text() or 0):  # while it is written: empty
        time.sleep(0.02)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, default=0.02)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--keep", type=int, default=0)
    parser.add_argument("--ranks-that-save", default="0")
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--one-file", action="store_true", help="overwrite last.pt in place")
    parser.add_argument("--crash-at", type=int, default=0)
    parser.add_argument("--limit", type=Path)
    arguments = parser.parse_args()
    rank = os.environ.get("RANK", "0")
    saves = rank in arguments.ranks_that_save.split(",")
    state = {"step": 0, "value": 1}
    if arguments.resume:
        state = {key: load(arguments.resume)[key] for key in ("step", "value")}
        print(f"resumed from {arguments.resume} at step {state['step']}", flush=True)
    else:
        print("starting at step 0", flush=True)
    print(
        f"BEGIN attempt {os.environ.get('RTJ_ATTEMPT')} rank {rank} step {state['step']}",
        flush=True,
    )
    while state["step"] < arguments.steps:
        wait_for_leave(arguments.limit, step=state["step"] + 1)
        time.sleep(arguments.step_seconds)
        step = state["step"] + 1
        state = {"step": step, "value": (state["value"] * 6364136223846793005 + step) % 2**61}
        print(f"step {step} loss {1 / step:.4f}", flush=True)
        if saves and (step % arguments.every == 0 or step == arguments.steps):
            arguments.dir.mkdir(parents=True, exist_ok=True)
            weight = (str(state["value"]).encode() * arguments.size)[: arguments.size]
            whole = {
                **state,
                "model": {"weight": weight},
                "optimizer": {"state": {0: {"exp_avg": [0.0]}}, "param_groups": [{"lr": 0.1}]},
            }
            name = "last.pt" if arguments.one_file else f"ckpt_{step}.pt"
            save(arguments.dir / name, whole, in_place=arguments.one_file)
            if arguments.keep:
                for old in sorted(arguments.dir.glob("ckpt_*.pt"), key=os.path.getmtime)[
                    : -arguments.keep
                ]:
                    old.unlink()
        if step == arguments.crash_at and not arguments.resume:
            raise RuntimeError(f"crash at step {step}, as asked")
    print(f"RESULT {state['step']} {state['value']}", flush=True)
    return 0


def expected(steps: int) -> int:
    """The value of an uninterrupted run."""
    value = 1
    for step in range(1, steps + 1):
        value = (value * 6364136223846793005 + step) % 2**61
    return value


if __name__ == "__main__":
    sys.exit(main())
