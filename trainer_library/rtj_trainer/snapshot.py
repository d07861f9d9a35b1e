"""A copy of the state in host memory, so that the trainer goes on while it is written.

The copy of the last save is written over: pages that the system has already given are filled much
sooner than new ones, and host memory is taken once. Must only be filled while nobody writes it out.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

from rtj_trainer.imported import imported
from rtj_trainer.registered import without_numpy


class Snapshot:
    """Room for one copy."""

    def __init__(self) -> None:
        self._room: dict[tuple[Any, ...], Any] = {}
        self._devices: set[Any] = set()

    def filled(self, state: Any) -> Any:
        """The state with every tensor copied to host memory; containers are new ones too.

        Tensors that share memory (tied weights) are copied apart: loading copies values. NumPy's
        scalars become Python's, which can be loaded without executing anything.
        """
        torch = imported("torch")
        used: set[tuple[Any, ...]] = set()
        self._devices = set()
        copied = self._copy(state, (), torch, used)
        for place in set(self._room) - used:
            del self._room[place]
        for device in self._devices:  # without a name it is the current one alone
            torch.cuda.synchronize(device)
        return copied

    def _copy(self, value: Any, at: tuple[Any, ...], torch: Any, used: set[tuple[Any, ...]]) -> Any:
        if torch is not None and isinstance(value, torch.Tensor):
            used.add(at)
            return self._tensor(value.detach(), at, torch)
        if type(value) in (dict, OrderedDict):
            pairs = [
                (without_numpy(key), self._copy(v, (*at, type(key), key), torch, used))
                for key, v in value.items()
            ]
            copied = type(value)(pairs)
            if hasattr(value, "_metadata"):  # a module's versions, which load_state_dict reads
                copied._metadata = copy.copy(value._metadata)
            return copied
        if type(value) in (list, tuple):
            return type(value)(
                self._copy(item, (*at, list, number), torch, used)
                for number, item in enumerate(value)
            )
        value = without_numpy(value)
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return value
        return copy.deepcopy(value)

    def _tensor(self, tensor: Any, at: tuple[Any, ...], torch: Any) -> Any:
        if tensor.layout != torch.strided:
            return tensor.cpu().clone()
        room = self._room.get(at)
        if room is None or room.shape != tensor.shape or room.dtype != tensor.dtype:
            on_device = tensor.device.type == "cuda"
            room = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=on_device)
            self._room[at] = room
        if tensor.device.type == "cuda":
            self._devices.add(tensor.device)
        room.copy_(tensor, non_blocking=tensor.device.type == "cuda")
        return room
