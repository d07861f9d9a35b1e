"""Saves of a model that is sharded over the ranks (`fully_shard`, DTensor), by PyTorch's DCP.

Each rank writes its own shard into the directory of the save; `.metadata` comes last and is the
commit marker that the sidecar's layout `dcp` looks for. What is no tensor of the model or of its
optimizer is one object a name, of the ranks that have one of their own with their number in it.
DCP is imported only when a sharded model is saved or restored.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

from rtj_trainer import files
from rtj_trainer.files import NotWhole
from rtj_trainer.imported import imported
from rtj_trainer.registered import put_back, unwrapped

_OF_EACH_RANK = ("rng", "dataloader", "kept")
_BY_SHARD = ("model", "optimizer")


def is_sharded(model: Any) -> bool:
    """Any of its parameters is a DTensor."""
    if model is None or not callable(getattr(model, "parameters", None)):
        return False
    return any(_is_dtensor(parameter) for parameter in model.parameters())


def check(things: Mapping[str, Any]) -> None:
    """Raises TypeError for a sharded thing that would be saved from one rank alone: only `model`
    and its `optimizer` are saved by shard."""
    is_whole = not is_sharded(things.get("model"))
    for name, thing in things.items():
        if not is_whole and name in _BY_SHARD:
            continue
        groups = getattr(thing, "param_groups", None) or ()
        parameters = [p for group in groups for p in group.get("params", ())]
        gradients_of = getattr(thing, "model", None) if name == "gradients" else None
        if (
            is_sharded(thing)
            or is_sharded(gradients_of)
            or any(_is_dtensor(parameter) for parameter in parameters)
        ):
            raise TypeError(_only_by_shard(name))


def state_of(things: Mapping[str, Any], *, extras: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """All that this rank gives to a save; tensors are the live ones. Raises TypeError for a
    DTensor outside of model and optimizer."""
    state = _state(things)
    for name, value in extras.items():
        if name in _OF_EACH_RANK:
            state[f"{name}_rank{rank}"] = _packed(value)
        else:
            state[name] = value if isinstance(value, (int, float)) else _packed(value)
    return state


def begin(path: Path, state: dict[str, Any], *, rank: int, group: Any) -> Callable[[], int]:
    """Copies the state to host memory and begins to write it; every rank calls it. The result
    waits for the end and gives the bytes of this rank. Raises what DCP does, or RuntimeError."""
    dcp = importlib.import_module("torch.distributed.checkpoint")
    writer = dcp.FileSystemWriter(path, single_file_per_rank=True, sync_files=True)
    with _as_exception():
        future = dcp.async_save(state, storage_writer=writer, process_group=group)

    def wait() -> int:
        with _as_exception():
            future.result()
        return sum(file.stat().st_size for file in path.glob(f"__{rank}_*"))

    return wait


def prove(path: Path, *, part: int, of: int) -> None:
    """Every shard is there and long enough, and of `of` parts this one is what was written
    (CRC-32). Raises NotWhole; OSError where it cannot be looked at."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not there: every rank needs the directory of the saves")
    if not files.is_finished(path):
        raise NotWhole(f"{path.name} has no .metadata: it did not finish")
    dcp = importlib.import_module("torch.distributed.checkpoint")
    pieces = sorted(
        (piece.relative_path, piece.offset, piece.length)
        for piece in _metadata(dcp, path).storage_data.values()
    )
    ends = {name: offset + length for name, offset, length in pieces}
    for name, end in ends.items():
        shard = path / name
        if not shard.is_file() or shard.stat().st_size < end:
            raise NotWhole(f"{path.name}/{name} is missing or cut off")
    for name, offset, length in pieces[part::of]:
        files.prove_part(path / name, offset=offset, length=length)


def restore(
    path: Path, *, things: Mapping[str, Any], rank: int, group: Any
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Every rank loads its shards of a save, whatever the number of ranks that made it.

    Returns the objects beside them (those of each rank as lists), the names restored and the
    names that are not in the save. Raises NotWhole.
    """
    dcp = importlib.import_module("torch.distributed.checkpoint")
    metadata = _metadata(dcp, path).state_dict_metadata
    bytes_type = importlib.import_module(
        "torch.distributed.checkpoint.metadata"
    ).BytesStorageMetadata
    alone = [key for key, kind in metadata.items() if isinstance(kind, bytes_type)]
    state = _state({name: things[name] for name in _BY_SHARD if name in things})
    state.update({key: b"" for key in alone if "." not in key})
    try:
        with _as_exception():
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
    by_shard = [name for name in _BY_SHARD if name in things]
    others = {name: thing for name, thing in things.items() if name not in by_shard}
    done, missing = put_back(others, extras, rank=rank)
    return extras, by_shard + done, missing


def _metadata(dcp: Any, path: Path) -> Any:
    try:
        with _as_exception():
            return dcp.FileSystemReader(path).read_metadata()
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
            own = unwrapped(thing).state_dict()
            if _holds_dtensor(own):
                raise TypeError(_only_by_shard(name))
            state[name] = _packed(own)
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


@contextmanager
def _as_exception() -> Iterator[None]:
    """DCP's own error derives from BaseException, which nobody who handles errors expects."""
    failure = importlib.import_module("torch.distributed.checkpoint.api").CheckpointException
    try:
        yield
    except failure as error:
        raise RuntimeError(str(error).strip()) from error


def _is_dtensor(value: Any) -> bool:
    tensor = imported("torch.distributed.tensor")
    return tensor is not None and isinstance(value, tensor.DTensor)


def _holds_dtensor(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_dtensor(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_dtensor(item) for item in value)
    return _is_dtensor(value)


def _only_by_shard(name: str) -> str:
    return (
        f"{name} is sharded (DTensor), and would be saved from one rank alone: only model= and its "
        "optimizer= are saved by shard. Leave it out, or make it whole: "
        f"{name}=Kept(get=..., put=...) with full_tensor()"
    )
