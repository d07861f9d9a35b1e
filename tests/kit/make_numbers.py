"""Writes saves whose numbers are odd in the ways that real trainers' are, with real objects.

Run by an interpreter that has torch, safetensors and numpy:

    python make_numbers.py DIRECTORY

Each directory below it holds saves of one run, in the order of their steps. Never imported by the
project itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

INF, NAN = float("inf"), float("nan")
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}


def healthy(step: int, dtype: torch.dtype = torch.float32) -> dict:
    """Everything that a healthy trainer keeps, infinities and NaN where they are no fault."""
    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128), torch.nn.Linear(128, 8))
    model = torch.nn.Sequential(*layers).to(dtype)
    model.register_buffer("attn_mask", torch.full((32, 32), -INF).triu(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-3)
    model(torch.randn(4, 64, dtype=dtype)).sum().backward()
    optimizer.step()
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    stopping = {"best_score": torch.tensor(-INF), "wait_count": 0, "min_delta": torch.tensor(NAN)}
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": plateau.state_dict() | {"mode_worse": torch.tensor(INF)},
        "lr_schedulers": [cycle.state_dict()],
        "scaler": torch.amp.GradScaler("cpu").state_dict(),
        "callbacks": {"EarlyStopping": stopping},
        "best_metric": torch.tensor(NAN),
        "rng": torch.get_rng_state(),
        "step": step,
        "loss": 0.5,
    }


def torch_runs(out: Path) -> None:
    for name, dtype in DTYPES.items():
        (out / name).mkdir()
        torch.save(healthy(1, dtype), out / name / "ckpt_1.pt")
        broken = healthy(2, dtype)
        broken["model"]["2.weight"].view(-1)[77] = NAN
        torch.save(broken, out / name / "ckpt_2.pt")
        broken = healthy(3, dtype)
        broken["optimizer"]["state"][0]["exp_avg"].view(-1)[-1] = -NAN
        torch.save(broken, out / name / "ckpt_3.pt")
        odd = healthy(4, dtype)
        odd["model"]["2.weight"].view(-1)[3:5] = torch.tensor([INF, -INF])
        odd["model"]["1.running_mean"].fill_(NAN)
        odd["model"]["attn_mask"].fill_(NAN)
        odd["scheduler"]["best"] = torch.tensor(NAN)
        torch.save(odd, out / name / "ckpt_4.pt")


def always_nan(out: Path) -> None:
    """A model with a NaN from its first step; in its third it has reached another tensor."""
    (out / "always").mkdir()
    for step in (1, 2, 3):
        state = healthy(step)
        state["model"]["0.bias"][0] = NAN
        if step == 3:
            state["model"]["0.weight"][0, 0] = NAN
        torch.save(state, out / "always" / f"ckpt_{step}.pt")


def grown(out: Path) -> None:
    """A layer is new in the second save, with a NaN: it was never finite."""
    (out / "grown").mkdir()
    torch.save(healthy(1), out / "grown" / "ckpt_1.pt")
    state = healthy(2)
    state["model"]["head.weight"] = torch.full((4, 4), NAN)
    torch.save(state, out / "grown" / "ckpt_2.pt")


def denormal(out: Path) -> None:
    """Megatron-LM#1570: tensors of garbage about 1e-42."""
    (out / "denormal").mkdir()
    state = healthy(1)
    state["model"]["0.weight"].fill_(1e-42)
    torch.save(state, out / "denormal" / "ckpt_1.pt")


def shared_storage(out: Path) -> None:
    """Tied weights, a slice of a larger tensor whose rest is NaN, and a strided view."""
    (out / "views").mkdir()
    big = torch.full((100, 10), NAN)
    big[:50] = 1.0
    weight = torch.randn(8, 8)
    state = {
        "model": {"tied.a": weight, "tied.b": weight, "head": big[:50], "column": big[:, 1]},
        "optimizer": {"state": {}},
        "step": 1,
    }
    torch.save(state, out / "views" / "ckpt_1.pt")


def others(out: Path) -> None:
    (out / "safetensors").mkdir()
    for step in (1, 2):
        weights = {"w": torch.ones(64, 64), "half": torch.ones(64, dtype=torch.bfloat16)}
        weights["small"] = torch.ones(8, dtype=torch.float8_e4m3fn)
        if step == 2:
            weights["half"][5] = NAN
        save_file(weights, out / "safetensors" / f"model_{step}.safetensors")
    for step in (1, 2):
        state = {
            "model": {"w": torch.ones(64, 64), "b": torch.zeros(64)},
            "optim": {"state": {"w.exp_avg": torch.ones(64, 64)}, "lr": 0.1},
            "step": step,
        }
        if step == 2:
            state["optim"]["state"]["w.exp_avg"][7, 7] = NAN
        dcp.save(state, checkpoint_id=out / "dcp" / f"step_{step}", no_dist=True)


def main(out: Path) -> None:
    out.mkdir(parents=True)
    for write in (torch_runs, always_nan, grown, denormal, shared_storage, others):
        write(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
