"""A trainer of the standard library only, which starts in a tenth of a second: for latencies.

It counts. Each `--step-seconds` it prints `STEP n time` (with `--loss` also one, that falls); each
`--save-every` steps it writes `step_<n>.pt`, a real torch.save archive (zip, CRCs, pickle) that
`torch.load` reads. Its state is one number that depends on every step before, so a resume that lost
or repeated a step ends with another digest. Like most scripts it writes to the final name and knows
nothing of this project.

Each rank counts for itself; only rank 0 saves unless `--save-ranks all`. With `--lockstep` no rank
makes a step before all have made the last one, as in a gang with a collective: a rank whose peer
ended fails, one whose peer is silent waits for ever. With `--deaf` SIGTERM has no effect.
"""

import argparse
import hashlib
import io
import os
import pickle
import signal
import socket
import struct
import sys
import time
import types
import zipfile
from collections import OrderedDict
from pathlib import Path

MASK = (1 << 63) - 1


def next_state(state: int, step: int) -> int:
    """One step: a multiplicative hash of what was, so order and number of steps show."""
    return (state * 6364136223846793005 + step) & MASK


class _Storage:
    """A flat storage of float32, as torch pickles it: by a persistent id."""

    def __init__(self, key: str, raw: bytes) -> None:
        self.key, self.raw = key, raw


def _fake_torch() -> types.ModuleType:
    """Just enough of `torch` for the pickle to name its classes; the real one is not needed."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2(*parts: object) -> object:
        return parts

    class FloatStorage:
        pass

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = (
        "torch._utils",
        "_rebuild_tensor_v2",
    )
    FloatStorage.__module__, FloatStorage.__qualname__ = "torch", "FloatStorage"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined]
    torch.FloatStorage, torch._utils = FloatStorage, utils  # type: ignore[attr-defined]
    return torch


class _Tensor:
    def __init__(self, storage: _Storage, torch: types.ModuleType) -> None:
        self.storage, self.torch = storage, torch

    def __reduce__(self) -> tuple[object, ...]:
        size = len(self.storage.raw) // 4
        parts = (self.storage, 0, (size,), (1,), False, OrderedDict())
        return (self.torch._utils._rebuild_tensor_v2, parts)


def write_checkpoint(path: Path, *, step: int, state: int, floats: int = 16) -> None:
    """`path` as torch.save would write it: {model, optimizer, step, state}."""
    torch = _fake_torch()
    weights = struct.pack(f"<{floats}f", *((state >> (i % 32)) % 97 / 97 for i in range(floats)))
    storages = [_Storage("0", weights), _Storage("1", weights)]
    model, moments = (_Tensor(storage, torch) for storage in storages)
    content = {
        "model": OrderedDict(weight=model),
        "optimizer": {"state": {0: {"exp_avg": moments}}, "param_groups": [{"lr": 0.1}]},
        "step": step,
        "state": state,
    }
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules |= {"torch": torch, "torch._utils": torch._utils}
    try:
        text = io.BytesIO()

        class Pickler(pickle.Pickler):
            def persistent_id(self, obj: object) -> object:
                if isinstance(obj, _Storage):
                    return ("storage", torch.FloatStorage, obj.key, "cpu", len(obj.raw) // 4)
                return None

        Pickler(text, protocol=2).dump(content)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    top = path.stem
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{top}/data.pkl", text.getvalue())
        archive.writestr(f"{top}/byteorder", "little")
        for storage in storages:
            archive.writestr(f"{top}/data/{storage.key}", storage.raw)
        archive.writestr(f"{top}/version", "3\n")


def read_checkpoint(path: Path) -> tuple[int, int]:
    """(step, state) of a file that `write_checkpoint` wrote; fails on a torn one."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> object:
            if (module, name) == ("collections", "OrderedDict"):
                return OrderedDict
            if module.split(".")[0] == "torch":
                return lambda *parts: parts
            raise pickle.UnpicklingError(f"unexpected {module}.{name}")

        def persistent_load(self, pid: object) -> object:
            return pid

    with zipfile.ZipFile(path) as archive:
        if (bad := archive.testzip()) is not None:
            raise ValueError(f"{path}: {bad} is damaged")
        content = Unpickler(io.BytesIO(archive.read(f"{path.stem}/data.pkl"))).load()
    return content["step"], content["state"]


class Lockstep:
    """A barrier over TCP at MASTER_ADDR:MASTER_PORT, where rank 0 counts the others."""

    def __init__(self, *, rank: int, size: int, host: str, port: int) -> None:
        self.others: list[socket.socket] = []
        if rank == 0:
            with socket.create_server(("", port)) as server:
                self.others = [server.accept()[0] for _ in range(size - 1)]
        else:
            self.zero = _connected(host, port)
        self.rank = rank

    def wait(self) -> None:
        """Until every rank has come here. Raises OSError when one of them has ended."""
        if self.rank == 0:
            for other in self.others:
                if not other.recv(1):
                    raise ConnectionError("a peer has closed the connection")
            for other in self.others:
                other.sendall(b".")
        else:
            self.zero.sendall(b".")
            if not self.zero.recv(1):
                raise ConnectionError("rank 0 has closed the connection")


def _connected(host: str, port: int, *, patience: float = 60.0) -> socket.socket:
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((host, port))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("/checkpoints"))
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--save-ranks", choices=("zero", "all"), default="zero")
    parser.add_argument("--floats", type=int, default=16, help="size of the saved tensors")
    parser.add_argument("--keep", type=int, help="delete older saves, as rotation does")
    parser.add_argument("--in-place", action="store_true", help="write one file again and again")
    parser.add_argument("--forgive", action="store_true", help="go on after a save that failed")
    parser.add_argument("--lockstep", action="store_true", help="no rank runs ahead")
    parser.add_argument("--loss", action="store_true", help="print one, that falls")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args()
    rank = int(os.environ.get("RANK", "0"))
    saves = rank == 0 or args.save_ranks == "all"
    suffix = f"_rank{rank}" if args.save_ranks == "all" else ""

    step, state = read_checkpoint(args.resume) if args.resume else (0, 1)
    print(f"START {step} {time.time():.6f} rank {rank}", flush=True)
    if args.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gang = None
    if args.lockstep:
        size, port = int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])
        gang = Lockstep(rank=rank, size=size, host=os.environ["MASTER_ADDR"], port=port)
    while step < args.steps:
        step += 1
        if gang is not None:
            gang.wait()
        state = next_state(state, step)
        loss = f" loss {2 / (1 + step / 20):.6f}" if args.loss else ""
        print(f"STEP {step} {time.time():.6f}{loss}", flush=True)
        if saves and (step % args.save_every == 0 or step == args.steps):
            name = "last" if args.in_place else f"step_{step:07d}"
            path = args.out / f"{name}{suffix}.pt"
            try:
                write_checkpoint(path, step=step, state=state, floats=args.floats)
                written = sorted(args.out.glob(f"step_*{suffix}.pt"))
                for old in written[: -args.keep] if args.keep else ():
                    old.unlink()
            except OSError as error:
                if not args.forgive:
                    raise
                print(f"NOT SAVED {step}: {error}", flush=True)
        time.sleep(args.step_seconds)
    print(f"DONE {step} {hashlib.sha256(str(state).encode()).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
