"""A small transformer trained with DistributedDataParallel on made-up text.

Run it alone, under torchrun, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set:

    python train.py --out checkpoints --steps 200
    torchrun --nproc-per-node 2 train.py --out checkpoints --resume checkpoints/step_0000100.pt

Training is deterministic: the same seed and number of processes give the same weights, whether or
not the run was interrupted and resumed. With another number of processes it takes the same samples
in the same steps, as long as processes x batch x accumulation stays what it was.
"""

import argparse
import hashlib
import json
import os
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR

VOCABULARY = 64
LENGTH = 16


class TinyTransformer(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.zeros(LENGTH, width))
        block = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, dropout=0.1, batch_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=tokens.device)
        hidden = self.embedding(tokens) + self.position
        return self.head(self.blocks(hidden, mask=mask, is_causal=True))


def make_dataset(samples, seed):
    """Noisy arithmetic sequences: easy enough that the loss falls within a few steps."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(VOCABULARY, (samples, 1), generator=generator)
    stride = torch.randint(1, 5, (samples, 1), generator=generator)
    return (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY


def batch_indices(step, *, samples, batch, rank, world, seed, accumulation=1):
    """The samples of this rank's batches, a row each. Each epoch has its own order, the same on
    every rank, and a step takes the next ones of it however many ranks share them."""
    whole = batch * world * accumulation
    epoch, position = divmod(step, samples // whole)
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed + epoch))
    taken = order[position * whole : (position + 1) * whole]
    return epoch, taken.reshape(accumulation, world, batch)[:, rank]


def save(path, *, model, optimizer, scheduler, step, epoch, loss, rank, world):
    """Everything that is needed to go on exactly here. Every rank has its own dropout noise."""
    states = [None] * world if rank == 0 else None
    dist.gather_object(torch.get_rng_state(), states)
    if rank == 0:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "rng": states,
            "step": step,
            "epoch": epoch,
            "loss": loss,
        }
        torch.save(state, path)


def load(path, *, model, optimizer, scheduler, rank):
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    if rank < len(state["rng"]):  # there may be more ranks than saved it
        torch.set_rng_state(state["rng"][rank])
    return state["step"]


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def weights_hash(model):
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def is_time_to_save(saved_at, interval_file, device):
    """Rank 0's clock and file decide for all: ranks that differ would wait for each other."""
    seconds = float(interval_file.read_text())
    is_due = torch.tensor(float(time.monotonic() - saved_at >= seconds), device=device)
    dist.broadcast(is_due, src=0)
    return bool(is_due)


def is_asked_to_stop(step, stop_file):
    """Every rank is told of the same step before any can have reached it: none asks the others."""
    if stop_file is None or not stop_file.exists():
        return False
    return step >= json.loads(stop_file.read_text())["step"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("/checkpoints"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    parser.add_argument("--interval-file", type=Path, help="seconds between saves, instead")
    parser.add_argument("--stop-file", type=Path, help="where a step to save and end at is told")
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    parser.add_argument("--step-seconds", type=float, default=0, help="slow every step down")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulation", type=int, default=1, help="batches of a rank in a step")
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1234)
    return parser.parse_args()


def main():
    args = parse_arguments()
    rank = int(os.environ.setdefault("RANK", "0"))
    world = int(os.environ.setdefault("WORLD_SIZE", "1"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    torch.manual_seed(args.seed)
    model = TinyTransformer(args.width, args.layers).to(device)
    torch.manual_seed(args.seed + 1 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = CosineAnnealingLR(optimizer, T_max=args.steps)
    data = make_dataset(args.samples, args.seed)
    args.out.mkdir(parents=True, exist_ok=True)

    step = 0
    if args.resume:
        step = load(args.resume, model=model, optimizer=optimizer, scheduler=scheduler, rank=rank)
        print(f"resumed from {args.resume} at step {step}", flush=True)
    parallel = DistributedDataParallel(model)
    print(f"rank {rank} of {world} takes {args.accumulation} batches of {args.batch}", flush=True)

    saved_at = time.monotonic()
    while step < args.steps:
        epoch, batches = batch_indices(
            step,
            samples=args.samples,
            batch=args.batch,
            rank=rank,
            world=world,
            seed=args.seed,
            accumulation=args.accumulation,
        )
        optimizer.zero_grad()
        loss = torch.zeros((), device=device)
        for number, chosen in enumerate(batches, start=1):
            # Gradients are exchanged once a step, with the last batch.
            with nullcontext() if number == args.accumulation else parallel.no_sync():
                part = loss_of(parallel, data[chosen].to(device)) / args.accumulation
                part.backward()
            loss += part.detach()
        optimizer.step()
        scheduler.step()
        step += 1
        print(f"step {step}/{args.steps} epoch {epoch} loss {loss.item():.4f}", flush=True)
        if args.step_seconds:
            time.sleep(args.step_seconds)
        if args.interval_file is None:
            is_due = step % args.save_every == 0
        else:
            is_due = is_time_to_save(saved_at, args.interval_file, device)
        is_stop = is_asked_to_stop(step, args.stop_file)
        if is_due or is_stop or step == args.steps:
            saved_at = time.monotonic()
            save(
                args.out / f"step_{step:07d}.pt",
                model=model,
                optimizer=optimizer,
                scheduler=scheduler,
                step=step,
                epoch=epoch,
                loss=loss.item(),
                rank=rank,
                world=world,
            )
        if is_stop and step < args.steps:
            print(f"stopped at step {step}, as asked", flush=True)
            dist.barrier()
            dist.destroy_process_group()
            return

    print(f"final weights sha256 {weights_hash(model)}", flush=True)
    if rank == 0:
        torch.save({"model": model.state_dict(), "step": step}, args.out / "final.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
