"""Two ranks with disks of their own save; each gets back only what `checkpoints.needs` says; loads.

Long, by hand: `python tests/frameworks/own_disks.py --python <venv with deepspeed>/bin/python`.
Prints one JSON line a stage: the files of each rank and whether every rank's optimizer state is
what it was. The same file is run by the ranks themselves, with the framework's Python.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORLD = 2


def rank_main(mode: str, stage: int, directory: str) -> None:
    """One rank; RANK and the rest are in the environment, as torchrun sets them."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 32))
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage},
    }
    deepspeed.init_distributed(dist_backend="gloo")
    engine, *_ = deepspeed.initialize(model=model, config=config)
    if mode == "save":
        for _ in range(3):
            given = torch.ones(4, 64, dtype=torch.bfloat16) * (int(os.environ["RANK"]) + 1)
            engine.backward(engine(given).float().square().mean())
            engine.step()
        engine.save_checkpoint(directory)
    else:
        path, _ = engine.load_checkpoint(directory)
        assert path, "nothing was loaded"
    print("STATE", engine.global_steps, digest(engine.optimizer.state_dict()), flush=True)


def digest(state: Any) -> str:
    import torch

    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.update(value.detach().float().cpu().numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                add(value[key])
        elif isinstance(value, list | tuple):
            for item in value:
                add(item)

    add(state)
    return found.hexdigest()


def gang(python: str, mode: str, stage: int, disks: Path) -> list[str]:
    """What each rank says of its state. Raises RuntimeError where one fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = []
    for rank in range(WORLD):
        where = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD)}
        command = [python, __file__, "--rank", mode, str(stage), str(disks / str(rank))]
        environment = {**os.environ, **where, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment.pop("PYTHONPATH", None)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        ranks.append(subprocess.Popen(command, env=environment, **pipes))  # type: ignore[call-overload]
    said = []
    for process in ranks:
        out, err = process.communicate(timeout=300)
        told = [line for line in out.splitlines() if line.startswith("STATE")]
        if process.returncode or not told:
            raise RuntimeError(err[-2000:])
        said.append(told[0])
    return said


def try_stage(python: str, stage: int, place: Path) -> dict[str, Any]:
    from rtj_sidecar.checkpoints.layouts import layouts_for
    from rtj_sidecar.checkpoints.needs import Gang, needed
    from rtj_sidecar.checkpoints.reader import Reader
    from rtj_sidecar.checkpoints.scan import take_snapshot

    saved = gang(python, "save", stage, place / "disks")
    files: dict[str, Path] = {}
    wrote: dict[int, list[str]] = {}
    facts: dict[str, object] = {}
    for rank in reversed(range(WORLD)):
        root = place / "disks" / str(rank)
        snapshot = take_snapshot(reader=Reader(root), layouts=layouts_for())
        for save in snapshot.saves:
            facts |= save.facts
        files |= {entry.path: root / entry.path for entry in snapshot.files}
        wrote[rank] = [entry.path for entry in snapshot.files]
    given = {}
    for rank in range(WORLD):
        who = Gang(rank=rank, world_size=WORLD, procs=1)
        opened = needed(list(files), facts=facts, was=WORLD, gang=who, wrote=wrote[rank].copy)
        given[rank] = sorted(opened)
        for path in given[rank]:
            to = place / "restored" / str(rank) / path
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(files[path], to)
    loaded = gang(python, "load", stage, place / "restored")
    return {"stage": stage, "files": len(files), "given": given, "equal": saved == loaded}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", help="an interpreter that has deepspeed")
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank_main(options.rank[0], int(options.rank[1]), options.rank[2])
        return 0
    sys.path[:0] = [str(ROOT / part) for part in ("crds", "trainer_sidecar")]
    wrong = 0
    for stage in (1, 2, 3):
        with tempfile.TemporaryDirectory(prefix="rtj-own-disks-") as place:
            found = try_stage(options.python, stage, Path(place))
        print(json.dumps(found), flush=True)
        wrong += not found["equal"]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
