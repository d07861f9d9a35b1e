"""Never deletes an old save: 1 MB each time, on a disk that holds fewer than it makes."""

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()


def save(step: int, state: int) -> None:
    write_checkpoint(args.out / f"step_{step}.pt", step=step, state=state, floats=1 << 17)


train(args, save, begin=read_checkpoint(args.resume) if args.resume else (0, 1))
