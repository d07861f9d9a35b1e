"""The random states of one process: taken, put back, and begun at a number.

Python, NumPy's global state, PyTorch's CPU and every CUDA device, as far as the script imported
them. Values are plain containers and tensors, so that they can be loaded without executing
anything. Must never touch a generator that the script made for itself: those are registered.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rtj_trainer.imported import imported, torch_or_none


def taken() -> dict[str, Any]:
    """The state of every global generator of this process, some kilobytes.

    Keys: `python`, and where the library is imported `numpy`, `torch`, and `cuda` (a list, one
    state a device) where CUDA is initialised.
    """
    states: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = imported("numpy"), torch_or_none()
    if numpy is not None and hasattr(numpy, "random"):
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        states["numpy"] = (name, [int(key) for key in keys], position, has_gauss, float(cached))
    if torch is not None:
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = [state.cpu() for state in torch.cuda.get_rng_state_all()]
    return states


def put_back(states: Mapping[str, Any]) -> tuple[str, ...]:
    """Sets what `taken` gave. Returns what could not be set, in words: a device that is not
    there, a library that is not imported."""
    left: list[str] = []
    random.setstate(_tuples(states["python"]))
    numpy, torch = imported("numpy"), torch_or_none()
    if "numpy" in states:
        if numpy is None:
            left.append("the random state of NumPy, which is not imported")
        else:
            name, keys, position, has_gauss, cached = states["numpy"]
            key = numpy.array(keys, dtype="uint32")
            numpy.random.set_state((name, key, position, has_gauss, cached))
    if "torch" in states:
        if torch is None:
            left.append("the random state of PyTorch, which is not imported")
        else:
            torch.set_rng_state(states["torch"])
    if states.get("cuda"):
        devices = torch.cuda.device_count() if torch is not None else 0
        for device, state in enumerate(states["cuda"][:devices]):
            torch.cuda.set_rng_state(state, device)
        if devices < len(states["cuda"]):
            left.append(f"the random states of {len(states['cuda']) - devices} CUDA devices")
    return tuple(left)


@contextmanager
def kept() -> Iterator[None]:
    """What is drawn inside leaves no trace outside."""
    before = taken()
    try:
        yield
    finally:
        put_back(before)


def begin_at(seed: int) -> None:
    """Begins Python, NumPy and PyTorch (CPU) at a number of 63 bits; each gets one of its own."""
    numpy, torch = imported("numpy"), torch_or_none()
    random.seed(mixed(seed, "python"))
    if numpy is not None:
        numpy.random.seed(mixed(seed, "numpy") % (1 << 32))
    if torch is not None:
        torch.default_generator.manual_seed(mixed(seed, "torch"))


def mixed(*parts: object) -> int:
    """63 bits that depend on each part and on their order; the same in every process."""
    text = "\x00".join(str(part) for part in parts).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def drawn(generator: Any = None) -> int:
    """A number of 63 bits from PyTorch's CPU generator, or the one that is given; from Python's
    without PyTorch. It is the draw that a DataLoader makes when it is iterated."""
    torch = torch_or_none()
    if torch is None:
        return random.getrandbits(63)
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _tuples(state: Any) -> Any:
    version, internal, gauss = state
    return version, tuple(internal), gauss
