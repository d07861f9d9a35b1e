"""What the scripts beside this file have in common: a state that depends on every step before.

A save is a real torch.save archive ({model, optimizer, step, state}) made with the standard
library, so that a script starts in a tenth of a second. A resume that lost, repeated or mixed a
step ends with another digest than `expected`.
"""

import argparse
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kit.trainers.counter import next_state, read_checkpoint, write_checkpoint

__all__ = ["arguments", "expected", "read_checkpoint", "train", "write_checkpoint"]


def arguments(parser: argparse.ArgumentParser | None = None) -> argparse.Namespace:
    parser = parser or argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--stall-at", type=int, help="in a first life: go no further than there")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def train(
    args: argparse.Namespace,
    save: Callable[[int, int], None],
    *,
    begin: tuple[int, int] = (0, 1),
    seed: int = 0,
    told: Sequence[int] = (),
) -> tuple[int, int]:
    """Steps from `begin` (step, state) to the end; `save(step, state)` at each interval.

    A stalled one goes on when it was `told` to end.
    """
    step, state = begin
    print(f"START {step}", flush=True)
    while step < args.steps:
        time.sleep(args.step_seconds)
        step += 1
        state = next_state(state, step + seed)
        print(f"STEP {step} {time.time():.6f}", flush=True)
        while begin[0] == 0 and step == args.stall_at and not told:
            time.sleep(0.05)
        if step % args.every == 0 or step == args.steps:
            save(step, state)
    print(f"DONE {step} {digest(state)}", flush=True)
    return step, state


def digest(state: int) -> str:
    return hashlib.sha256(str(state).encode()).hexdigest()


def expected(steps: int, *, seed: int = 0) -> str:
    """What a run that nothing ever hurt prints at its end."""
    state = 1
    for step in range(1, steps + 1):
        state = next_state(state, step + seed)
    return f"DONE {steps} {digest(state)}"
