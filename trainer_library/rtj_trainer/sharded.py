"""Saves of a model that is sharded over the ranks (`fully_shard`, DTensor), by PyTorch's DCP.

Each rank writes its own shard into the directory of the save; `.metadata` comes last and is the
commit marker that the sidecar's layout `dcp` looks for. What is no tensor of the model or of its
optimizer is one object a name, of the ranks that have one of their own with their number in it.
DCP is imported only when a sharded model is saved or restored.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from rtj_trainer.files import NotWhole
from rtj_trainer.imported import imported
from rtj_trainer.registered import unwrapped

_OF_EACH_RANK = ("rng", "dataloader")


def is_sharded(model: Any) -> bool:
    """Any of its parameters is a DTensor."""
    tensor = imported("torch.distributed.tensor")
    if tensor is None or model is None or not callable(getattr(model, "parameters", None)):
        return False
    return any(isinstance(parameter, tensor.DTensor) for parameter in model.parameters())


def begin(
    path: Path, *, things: Mapping[str, Any], extras: Mapping[str, Any], rank: int, group: Any
) -> Callable[[], int]:
    """Copies the state to host memory and begins to write it; every rank calls it. The result
    waits for the end and gives the bytes of this rank. Its errors are DCP's."""
    dcp = importlib.import_module("torch.distributed.checkpoint")
    writer = dcp.FileSystemWriter(path, single_file_per_rank=True, sync_files=True)
    state = _state(things)
    for name, value in extras.items():
        if name in _OF_EACH_RANK:
            state[f"{name}_rank{rank}"] = _packed(value)
        else:
            state[name] = value if isinstance(value, (int, float)) else _packed(value)
    future = dcp.async_save(state, storage_writer=writer, process_group=group)

    def wait() -> int:
        future.result()
        return sum(file.stat().st_size for file in path.glob(f"__{rank}_*"))

    return wait


def restore(
    path: Path, *, things: Mapping[str, Any], group: Any
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Every rank loads its shards of a save, whatever the number of ranks that made it.

    Returns the objects beside them (those of each rank as lists), the names restored and the
    names that are not in the save. Raises NotWhole.
    """
    dcp = importlib.import_module("torch.distributed.checkpoint")
    metadata = _metadata(dcp, path)
    bytes_type = importlib.import_module(
        "torch.distributed.checkpoint.metadata"
    ).BytesStorageMetadata
    alone = [key for key, kind in metadata.items() if isinstance(kind, bytes_type)]
    state = _state({name: things[name] for name in ("model", "optimizer") if name in things})
    state.update({key: b"" for key in alone if "." not in key})
    try:
        dcp.load(state, storage_reader=dcp.FileSystemReader(path), process_group=group)
    except Exception as error:
        raise NotWhole(f"{path.name} cannot be loaded: {error}") from error
    _set(things, state)
    extras: dict[str, Any] = {}
    for key in alone:
        if key in state:
            value = state[key]
            extras[key] = _unpacked(value) if isinstance(value, bytes) else value
    for name in _OF_EACH_RANK:
        ranks = sorted((k for k in extras if k.startswith(f"{name}_rank")), key=_rank_of)
        extras[name] = [extras.pop(key) for key in ranks]
    done, missing = [name for name in ("model", "optimizer") if name in things], []
    for name, thing in things.items():
        if name in done:
            continue
        if name in extras:
            unwrapped(thing).load_state_dict(extras[name])
            done.append(name)
        else:
            missing.append(name)
    return extras, done, missing


def _metadata(dcp: Any, path: Path) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
        return found
    except Exception as error:
        raise NotWhole(f"{path.name} has no whole .metadata: {error}") from error


def _state(things: Mapping[str, Any]) -> dict[str, Any]:
    """Names of tensors that do not depend on the sharding; optimizer states are made if need be."""
    of = importlib.import_module("torch.distributed.checkpoint.state_dict")
    state: dict[str, Any] = {}
    model, optimizer = things.get("model"), things.get("optimizer")
    if model is not None and optimizer is not None:
        state["model"], state["optimizer"] = of.get_state_dict(model, optimizer)
    elif model is not None:
        state["model"] = of.get_model_state_dict(model)
    for name, thing in things.items():
        if name not in state:
            state[name] = _packed(unwrapped(thing).state_dict())
    return state


def _set(things: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    of = importlib.import_module("torch.distributed.checkpoint.state_dict")
    model, optimizer = things.get("model"), things.get("optimizer")
    if model is not None and optimizer is not None:
        of.set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
    elif model is not None:
        of.set_model_state_dict(model, state["model"])


def _packed(value: Any) -> bytes:
    room = io.BytesIO()
    imported("torch").save(value, room)
    return room.getvalue()


def _unpacked(value: bytes) -> Any:
    return imported("torch").load(io.BytesIO(value), map_location="cpu", weights_only=False)


def _rank_of(key: str) -> int:
    return int(key.rpartition("_rank")[2])
