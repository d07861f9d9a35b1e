"""Traps SIGTERM: saves where it is and exits 0, as a script made for preemptible nodes does."""

import signal
import sys

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()
told: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
args.every, interval = 1, args.every


def save(step: int, state: int) -> None:
    if not (told or step % interval == 0):
        return
    write_checkpoint(args.out / f"step_{step}.pt", step=step, state=state)
    if told:
        print(f"SAVED AT THE END {step}", flush=True)
        sys.exit(0)


train(args, save, begin=read_checkpoint(args.resume) if args.resume else (0, 1), told=told)
