"""Takes `--resume` and never reads it: it begins at 0 each time."""

from kit.trainers.habits.work import arguments, train, write_checkpoint

args = arguments()
train(
    args,
    lambda step, state: write_checkpoint(args.out / f"step_{step}.pt", step=step, state=state),
)
