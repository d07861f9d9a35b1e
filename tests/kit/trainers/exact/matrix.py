"""Each case: once without interruption, then killed again and again until it is through.

    python matrix.py --kills 10 --seed 1 '{"model": "convnet", "data": "map", …}' …

A line of JSON a case. Trainers are forked from here, so that PyTorch is imported once. A kill is
SIGKILL: at the beginning of a step, at an fsync of a save, while a sample is made, or at a moment
that chance takes. Several ranks die together, as a gang does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import tasks
import torch.distributed as dist

SECONDS = 240


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("cases", nargs="+")
    args = parser.parse_args()
    for number, text in enumerate(args.cases):
        case = json.loads(text)
        luck = random.Random(f"{args.seed} {number}")
        with tempfile.TemporaryDirectory(prefix="rtj-exact-") as place:
            told = compared(case, Path(place), kills=args.kills, luck=luck)
        print(json.dumps({"case": case, **told}), flush=True)
    return 0


def compared(case: dict[str, Any], place: Path, *, kills: int, luck: random.Random) -> dict:
    world = case.get("ranks", 1)
    whole, cut = place / "whole", place / "cut"
    if not attempt(case, whole, None, world):
        return {"error": f"the uninterrupted run failed: {log_of(whole)}"}
    done = []
    while len(done) < kills:
        kill = drawn(luck)
        if attempt(case, cut, kill, world):
            # It was through before its kill came: once more from nothing, with the kills left.
            if len(done) + 1 == kills:
                break
            check = difference(whole, cut, world)
            if check:
                return {"error": check, "kills": done}
            shutil.rmtree(cut)
            continue
        done.append(kill)
    if not attempt(case, cut, None, world):
        return {"error": f"the last attempt failed: {log_of(cut)}", "kills": done}
    found = difference(whole, cut, world)
    return {"error": found, "kills": done} if found else {"kills": done}


def drawn(luck: random.Random) -> tuple[str, float]:
    kind = luck.choice(("step", "save", "loader", "moment"))
    if kind == "step":
        return kind, luck.randint(1, 9)
    if kind == "save":
        return kind, luck.randint(1, 5)
    return (kind, luck.randrange(tasks.SAMPLES)) if kind == "loader" else (kind, luck.random())


def difference(whole: Path, cut: Path, world: int) -> str:
    """What the interrupted run did otherwise; "" if nothing."""
    for rank in range(world):
        before, now = (place / f"digest-{rank}" for place in (whole, cut))
        lines = {line.split(" ", 1)[0]: line for line in trace(whole, rank)}
        for line in trace(cut, rank):
            expected = lines.get(line.split(" ", 1)[0])
            if line != expected:
                return f"rank {rank}: {line!r}, and without interruption {expected!r}"
        if {line.split(" ", 1)[0] for line in trace(cut, rank)} != set(lines):
            return f"rank {rank} did not make every step"
        if before.read_text() != now.read_text():
            return f"rank {rank} ends as {now.read_text()}, not {before.read_text()}"
    return ""


def trace(place: Path, rank: int) -> list[str]:
    text = (place / f"trace-{rank}").read_text()
    return [line for line in text.split("\n") if line.endswith(tuple("0123456789")) and "]" in line]


def attempt(case: dict[str, Any], place: Path, kill: Any, world: int) -> bool:
    """Whether every rank came to its end."""
    place.mkdir(parents=True, exist_ok=True)
    os.environ["EXACT_MARK"] = str(place / f"killed-{time.monotonic_ns()}")
    meeting = f"file://{place}/meeting-{time.monotonic_ns()}"
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            _trainer(case, place, rank, world, kill if rank == world - 1 else None, meeting)
        pids.append(pid)
    codes = {}
    until = time.monotonic() + SECONDS
    while len(codes) < world:
        for pid in set(pids) - set(codes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = status
        if any(codes.values()) or time.monotonic() > until:
            for pid in set(pids) - set(codes):
                _end(pid)
                codes[pid] = os.waitpid(pid, 0)[1]
        time.sleep(0.005)
    for pid in pids:
        _end(pid)  # its loader's workers are of its group
    return not any(codes.values())


def _trainer(case: Any, place: Path, rank: int, world: int, kill: Any, meeting: str) -> None:
    os.setpgid(0, 0)
    code = 70
    try:
        with open(place / f"log-{rank}", "a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        if world > 1:
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
        if kill and kill[0] == "moment":
            threading.Timer(kill[1], _kill_myself).start()
        if kill and kill[0] == "save":
            _kill_at_fsync(int(kill[1]))
        tasks.train(case, place, rank=rank, world=world, kill=kill)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def _kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_at_fsync(number: int) -> None:
    real, count = os.fsync, [0]

    def fsync(handle: int) -> None:
        count[0] += 1
        if count[0] == number:
            _kill_myself()
        real(handle)

    os.fsync = fsync


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def log_of(place: Path) -> str:
    return "\n".join(p.read_text()[-1500:] for p in sorted(place.glob("log-*")))


if __name__ == "__main__":
    sys.exit(main())
