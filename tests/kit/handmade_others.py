"""Saves of Lightning, Composer, torchtune, fastai, Orbax, TensorFlow and Keras, made by hand."""

from __future__ import annotations

import hashlib
import os
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from awscrt import checksums

from kit.handmade import Object, dcp_directory, json_file, safetensors_file, torch_file
from kit.handmade_hdf5 import hdf5_bytes

LEGACY_MAGIC = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")
_OPTIMIZER = {"state": {0: {"step": 1.0}}, "param_groups": [{"lr": 1e-3}]}
_TABLE_MAGIC = 0xDB4775248B80FB57
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def legacy_file(path: Path, state: Mapping[str, Any], *, elements: int = 300) -> None:
    """torch.save's older form: five pickles and one storage of float32, of random bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # ("storage", torch.FloatStorage, "0", "cpu", elements, None) as a persistent id, by opcodes.
    named = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu"
    named += b"J" + struct.pack("<i", elements) + b"NtQ"
    body = pickle.dumps(dict(state), 2)[:-1] + b"X\x05\0\0\0model" + named + b"s."
    parts = [pickle.dumps(1001, 2), pickle.dumps({"little_endian": True}, 2), body]
    keys = pickle.dumps(["0"], 2)
    storage = struct.pack("<q", elements) + os.urandom(4 * elements)
    path.write_bytes(LEGACY_MAGIC + b"".join(parts) + keys + storage)


def lightning_state(step: int) -> dict[str, Any]:
    state: dict[str, Any] = {"epoch": step // 100, "global_step": step, "state_dict": {}}
    state |= {"pytorch-lightning_version": "2.6.6", "loops": {}, "lr_schedulers": [{}]}
    return state | {"optimizer_states": [_OPTIMIZER]}


def lightning(path: Path, *, step: int) -> None:
    torch_file(path, lightning_state(step))


def lightning_sharded(directory: Path, *, step: int, ranks: int = 2) -> None:
    dcp_directory(directory, {"state_dict.w": None, "optimizer_0.w": None}, ranks=ranks)
    torch_file(directory / "meta.pt", {**lightning_state(step), "optimizer_states": None})


def composer(root: Path, *, epoch: int, batch: int, ranks: int = 2) -> None:
    """Of more than one rank: each with its part of a sharded tensor, as torch 1 had it saved."""
    when = {"Timestamp": {"epoch": epoch, "batch": batch, "sample": batch * 8}}
    part = Object("torch.distributed._shard.sharded_tensor.api", "ShardedTensor", {"rank": 0})
    inner = {"model": {"w": part} if ranks > 1 else {}, "optimizers": _OPTIMIZER}
    inner |= {"schedulers": {"x": {}}, "timestamp": when}
    for rank in range(ranks):
        state = {"state": inner, "rng": [{"python": (3, (1,), None)}] * ranks}
        torch_file(root / f"ep{epoch}-ba{batch}-rank{rank}.pt", state)
        link = root / f"latest-rank{rank}.pt"
        link.unlink(missing_ok=True)
        link.symlink_to(f"ep{epoch}-ba{batch}-rank{rank}.pt")


def torchtune(directory: Path, *, epoch: int) -> None:
    safetensors_file(directory / "model.safetensors", "weight")
    json_file(directory / "config.json", {"model_type": "llama"})
    state = {"epochs_run": epoch + 1, "steps_run": (epoch + 1) * 100, "optimizer": _OPTIMIZER}
    torch_file(directory / "recipe_state.pt", {**state, "dataloader": {}})


def fastai(path: Path) -> None:
    torch_file(path, {"model": {"w": 0}, "opt": {"state": [], "hypers": [{"lr": 1e-3}]}})


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _masked(data: bytes) -> bytes:
    crc = checksums.crc32c(data)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def table_bytes(*blocks: bytes) -> bytes:
    """A sorted string table of these blocks, with right checksums."""
    out, index = b"", b""
    for at, block in enumerate(blocks):
        handle = _varint(len(out)) + _varint(len(block))
        index += b"\0" + _varint(1) + _varint(len(handle)) + bytes([at % 256]) + handle
        out += block + b"\0" + _masked(block + b"\0")
    index += struct.pack("<II", 0, 1)
    place = _varint(len(out)) + _varint(len(index))
    out += index + b"\0" + _masked(index + b"\0")
    footer = (_varint(0) + _varint(0) + place).ljust(40, b"\0")
    return out + footer + _TABLE_MAGIC.to_bytes(8, "little")


def block_bytes(entries: Mapping[bytes, bytes]) -> bytes:
    """One block, no prefix shared."""
    body = b"".join(
        b"\0" + _varint(len(key)) + _varint(len(value)) + key + value
        for key, value in sorted(entries.items())
    )
    return body + struct.pack("<II", 0, 1)


def tf_checkpoint(prefix: Path, *, step: int) -> None:
    """`prefix.index` and its data file: float32 weights, a slot, the count of steps. The text
    `checkpoint` beside it names it."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, tuple[int, list[int], bytes]] = {
        f"model/w{_VALUE}": (1, [200], os.urandom(800)),
        f"model/w/.OPTIMIZER_SLOT/optimizer/m{_VALUE}": (1, [200], os.urandom(800)),
        f"step{_VALUE}": (9, [], struct.pack("<q", step)),
    }
    data = b""
    entries = {b"": b"\x08\x01"}
    for name, (kind, shape, content) in sorted(tensors.items()):
        sizes = b"".join(
            b"\x12" + _varint(len(one)) + one for one in (b"\x08" + _varint(n) for n in shape)
        )
        entry = b"\x08" + _varint(kind) + b"\x12" + _varint(len(sizes)) + sizes
        entry += b"\x20" + _varint(len(data)) + b"\x28" + _varint(len(content))
        entries[name.encode()] = entry + b"\x35" + _masked(content)
        data += content
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table_bytes(block_bytes(entries)))
    told = f'model_checkpoint_path: "{prefix.name}"\nall_model_checkpoint_paths: "{prefix.name}"\n'
    (prefix.parent / "checkpoint").write_text(told)


def ocdbt_bytes(body: bytes, *, manifest: bool) -> bytes:
    magic = bytes.fromhex("0cdb3a2a" if manifest else "0cdb20de")
    whole = magic + struct.pack("<Q", 12 + 2 + len(body) + 4) + b"\0\0" + body
    return whole + checksums.crc32c(whole).to_bytes(4, "little")


def orbax(directory: Path, *, processes: int = 2) -> None:
    """One step of a CheckpointManager, committed. Array values have no checksum of their own."""
    item = directory / "default"
    json_file(item / "_METADATA", {"tree_metadata": {"('params', 'w')": 0, "('opt_state',)": 0}})
    for place in (item, *(item / f"ocdbt.process_{p}" for p in range(processes))):
        (place / "d").mkdir(parents=True, exist_ok=True)
        (place / "manifest.ocdbt").write_bytes(ocdbt_bytes(os.urandom(60), manifest=True))
        name = hashlib.md5(str(place).encode(), usedforsecurity=False).hexdigest()
        (place / "d" / name).write_bytes(ocdbt_bytes(os.urandom(900), manifest=False))
    for process in range(processes):
        json_file(item / "array_metadatas" / f"process_{process}", {"array_metadatas": []})
    marker = {"item_handlers": {"default": "StandardCheckpointHandler"}}
    json_file(
        directory / "_CHECKPOINT_METADATA", {**marker, "commit_timestamp_nsecs": 1_790_000_000}
    )


def keras_weights(path: Path, *, step: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, bytes | int] = {"layers/dense/vars/0": os.urandom(800)}
    arrays |= {"optimizer/vars/0": step, "optimizer/vars/1": os.urandom(800)}
    path.write_bytes(hdf5_bytes(arrays))


def keras_backup(directory: Path, *, epoch: int) -> None:
    keras_weights(directory / "latest.weights.h5", step=epoch)
    json_file(directory / "training_metadata.json", {"epoch": epoch, "batch": 0})
