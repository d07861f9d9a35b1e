"""Real PyTorch: traps SIGTERM and SIGUSR1. After each step the ranks ask each other whether one was
told; then all save where they are and exit 0, as scripts made for Slurm and spot nodes do."""

import signal
import sys
import time

import torch
import torch.distributed as dist

from kit.trainers.habits.work import arguments

args = arguments()
told: list[int] = []
for name in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(name, lambda number, frame: told.append(number))

torch.set_num_threads(1)
torch.manual_seed(1234)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
step = 0
if args.resume:
    content = torch.load(args.resume, weights_only=True)
    model.module.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    step = content["step"]
while step < args.steps:
    time.sleep(args.step_seconds)
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    print(f"step {step}/{args.steps}", flush=True)
    is_told = torch.tensor(float(bool(told)))
    dist.all_reduce(is_told, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0 and (is_told or step % args.every == 0):
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "step": step}, args.out / f"step_{step}.pt")
    if is_told:
        print(f"SAVED AND ENDS AT {step}, told by {told}", flush=True)
        dist.barrier()
        dist.destroy_process_group()
        sys.exit(0)
