"""Every node saves its own state under the same name: the bytes differ from node to node."""

import os

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()
rank = int(os.environ["RANK"])


def save(step: int, state: int) -> None:
    write_checkpoint(args.out / f"checkpoint_{step}.pt", step=step, state=state)


train(args, save, begin=read_checkpoint(args.resume) if args.resume else (0, 1), seed=1000 * rank)
