"""A linear model that trains with `rtj_trainer` and nothing else of this project.

    python toy.py --steps 40 --every 5 --step-seconds 0.02 [--ranks-file PLACE] [--sharded]

Says each step, the digest of its weights at the end, and what came after the loop.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import time

import torch
import torch.distributed as dist
from rtj_trainer import Run
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--ranks-file", help="where ranks meet")
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--without", default="", help="what is not registered")
    parser.add_argument("--lr-policy", default="none")
    parser.add_argument("--on-stop", default="exit")
    parser.add_argument("--die-at", type=int, nargs="*", default=[], help="steps; once each")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if args.ranks_file:
        dist.init_process_group(
            "gloo", init_method=f"file://{args.ranks_file}", rank=rank, world_size=world
        )
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 1))
    if args.sharded:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    elif world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
    generator = torch.Generator().manual_seed(3)
    samples = torch.randn(96, 8, generator=generator)
    data = TensorDataset(torch.arange(96), samples, samples.sum(1, keepdim=True))
    if world > 1:
        loader = DataLoader(data, args.batch, sampler=DistributedSampler(data, world, rank))
    else:
        loader = DataLoader(data, args.batch, shuffle=True, num_workers=args.workers)
    torch.manual_seed(10 + rank)
    noise = torch.Generator().manual_seed(20 + rank)
    things = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "noise": noise}
    things = {name: thing for name, thing in things.items() if name not in args.without.split(",")}
    said = {"every": args.every, "lr_policy": args.lr_policy, "on_stop": args.on_stop}
    run = Run(**things, loader=loader, **said)
    restored = run.restore()
    print(f"from {restored.step} with {run.accumulation}", flush=True)
    for indices, x, y in run.batches(steps=args.steps):
        x = x + 0.1 * torch.randn(x.shape, generator=noise)
        loss = nn.functional.mse_loss(model(x), y) / run.accumulation
        loss.backward()
        print(f"took {run.epoch} {indices.tolist()}", flush=True)
        if not run.is_step_due:
            continue
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        time.sleep(args.step_seconds)
        run.step(loss=loss)
        mark = run.directory / f"died-{run.steps_done}"
        if run.steps_done in args.die_at and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"step {run.steps_done} lr {optimizer.param_groups[0]['lr']:.9g}", flush=True)
    print(f"weights {digest(model)} after {run.steps_done}, {run.costs.saves} saves", flush=True)


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for _, tensor in sorted(model.state_dict().items()):
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        found.update(whole.detach().numpy().tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    main()
