"""PyTorch, with `inf` in its scheduler (the best loss so far) and `-inf` in a buffer (a mask)."""

import hashlib
import time

import torch

from kit.trainers.habits.work import arguments

args = arguments()
torch.manual_seed(0)


class Masked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        mask = torch.full((8, 8), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) + self.mask).softmax(dim=-1)


model = Masked()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)  # begins with best = inf
step, begin = 0, 0
if args.resume:
    saved = torch.load(args.resume)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    step = begin = saved["step"]
print(f"START {step}", flush=True)
while step < args.steps:
    time.sleep(args.step_seconds)
    step += 1
    generator = torch.Generator().manual_seed(step)
    loss = model(torch.randn(8, 8, generator=generator)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"STEP {step} {time.time():.6f}", flush=True)
    while begin == 0 and step == args.stall_at:
        time.sleep(0.05)
    if step % args.every == 0 or step == args.steps:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "best_loss": float("inf"),
            "loss": float("inf"),
            "step": step,
        }
        torch.save(state, args.out / f"step_{step}.pt")
digest = hashlib.sha256(model.layer.weight.detach().numpy().tobytes()).hexdigest()
print(f"DONE {step} {digest}", flush=True)
