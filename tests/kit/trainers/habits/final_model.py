"""Ends with a final model, its config and a report in the root of the checkpoint directory."""

import json

from kit.trainers.habits.work import arguments, read_checkpoint, train, write_checkpoint

args = arguments()


def save(step: int, state: int) -> None:
    write_checkpoint(args.out / f"step_{step}.pt", step=step, state=state)


step, state = train(args, save, begin=read_checkpoint(args.resume) if args.resume else (0, 1))
body = state.to_bytes(8, "little")
header = json.dumps({"weight": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}).encode()
(args.out / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + body)
(args.out / "config.json").write_text(json.dumps({"trained_steps": step}))
(args.out / "report").mkdir(exist_ok=True)
(args.out / "report" / "curve.csv").write_text("step,loss\n")
