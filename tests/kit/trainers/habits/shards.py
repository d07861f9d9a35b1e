"""Every rank saves its own shard of a step's directory; a resume needs all of them."""

import os

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def save(step: int, state: int) -> None:
    directory = args.out / f"step_{step}"
    directory.mkdir(exist_ok=True)
    write_checkpoint(directory / f"shard_rank{rank}.pt", step=step, state=state)


begin = (0, 1)
if args.resume:
    shards = [read_checkpoint(args.resume / f"shard_rank{r}.pt") for r in range(size)]
    if len({step for step, _ in shards}) != 1:
        raise SystemExit(f"shards of different steps: {shards}")
    begin = shards[rank]
train(args, save, begin=begin, seed=1000 * rank)
