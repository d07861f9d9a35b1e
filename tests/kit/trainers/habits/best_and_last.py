"""Saves `last.pt` each time and `best.pt` while its loss improved; finds `last.pt` by itself, and
ends with what `best.pt` holds."""

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()


def save(step: int, state: int) -> None:
    write_checkpoint(args.out / "last.pt", step=step, state=state)
    if step == 5:  # it never gets better
        write_checkpoint(args.out / "best.pt", step=step, state=state)


last = args.out / "last.pt"
train(args, save, begin=read_checkpoint(last) if last.exists() else (0, 1))
best = args.out / "best.pt"
print(f"BEST {read_checkpoint(best)[0]}", flush=True)
