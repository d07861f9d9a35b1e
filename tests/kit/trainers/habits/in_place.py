"""Overwrites the one file `last.pt` in place."""

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()
begin = read_checkpoint(args.resume) if args.resume else (0, 1)
train(
    args,
    lambda step, state: write_checkpoint(args.out / "last.pt", step=step, state=state),
    begin=begin,
)
