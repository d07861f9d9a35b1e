"""A small real PyTorch training with one trouble built in that a restart alone does not mend.

Fits a line by Adam with a cosine schedule, saves the full state, resumes by `--resume`. Like most
scripts it knows nothing of this project but the progress file. Each trouble is what a user's
own mistake, or one bad node, would do:

    nan        the row of step --at is not a number, each time that the step is made
    raise      a ValueError after step --at
    scheduler  the resume forgets to load the scheduler
    leak       each step keeps 24 MiB
    node       SIGSEGV at the fifth step after a start on node --node
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

LEAK = 24 << 20
STEPS_ON_BAD_NODE = 5


def batch(step: int, *, bad: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy points of one line, other ones in each step, the same in each pass over it."""
    luck = torch.Generator().manual_seed(step)
    x = torch.randn(64, 8, generator=luck)
    y = x.sum(dim=1, keepdim=True) + 0.1 * torch.randn(64, 1, generator=luck)
    if bad:
        x[3, 2] = float("nan")
    return x, y


def tell(**what: float) -> None:
    with open(os.environ["RTJ_PROGRESS_FILE"], "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trouble", choices=("nan", "raise", "scheduler", "leak", "node"))
    parser.add_argument("--out", type=Path, default=Path("/checkpoints"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--node", default="")
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    step = 0
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        if args.trouble == "scheduler":
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"]
        else:
            scheduler.load_state_dict(state["scheduler"])
    kept, made = [], 0
    while step < args.steps:
        x, y = batch(step + 1, bad=args.trouble == "nan" and step + 1 == args.at)
        lr = optimizer.param_groups[0]["lr"]
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step, made = step + 1, made + 1
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        tell(step=step, loss=loss.item(), lr=lr)
        if args.trouble == "raise" and step == args.at:
            raise ValueError(f"sample {args.at}: expected 8 columns, found 7")
        if args.trouble == "leak":
            kept.append(bytearray(os.urandom(1 << 10) * (LEAK >> 10)))
        on_bad = os.environ.get("NODE_NAME", "") == args.node
        if args.trouble == "node" and on_bad and made == STEPS_ON_BAD_NODE:
            os.kill(os.getpid(), signal.SIGSEGV)
        if step % args.every == 0 or step == args.steps:
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "step": step,
                },
                args.out / f"step_{step:07d}.pt",
            )
        time.sleep(args.step_seconds)
    print(f"DONE {step}", flush=True)


if __name__ == "__main__":
    main()
