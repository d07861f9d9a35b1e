"""Saves twice at the same step: by its interval, and again at the end of what it calls an epoch,
over the same file and under a second name."""

import time

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()


def save(step: int, state: int) -> None:
    write_checkpoint(args.out / f"step_{step}.pt", step=step, state=state)
    if step % (2 * args.every) == 0:
        write_checkpoint(args.out / f"step_{step}.pt", step=step, state=state, floats=24)
        time.sleep(1.5)
        write_checkpoint(
            args.out / f"epoch_{step // (2 * args.every)}.pt", step=step, state=state, floats=24
        )


train(args, save, begin=read_checkpoint(args.resume) if args.resume else (0, 1))
