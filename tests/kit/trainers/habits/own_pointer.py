"""Keeps a pointer file of its own, `progress.json`, and trusts nothing else when it starts."""

import json

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()
pointer = args.out / "progress.json"


def save(step: int, state: int) -> None:
    name = f"ckpt-{step:06d}.pt"
    write_checkpoint(args.out / name, step=step, state=state)
    pointer.write_text(json.dumps({"newest": name, "saves": step // args.every}))


begin = (0, 1)
if pointer.exists():
    told = json.loads(pointer.read_text())
    begin = read_checkpoint(args.out / told["newest"])
    if told["saves"] != begin[0] // args.every:
        raise SystemExit(f"{pointer} does not fit {told['newest']}")
train(args, save, begin=begin)
