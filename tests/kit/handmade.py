"""Checkpoint files written by hand, in the frameworks' own formats, without any framework.

For libraries that CI does not have. Names, containers and keys are mirrored from the libraries'
source; only what `test_handmade_names.py` names is compared with real trees, file name by file
name, and no test compares keys. `tests/frameworks` runs the readers on the real ones.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(eq=False)
class Object:
    """Pickled as an instance of the class `module.name` with these attributes, without it."""

    module: str
    name: str
    state: dict[str, Any] = field(default_factory=dict)


class _Pickler(pickle._Pickler):  # type: ignore[misc,name-defined]
    """The pure-Python pickler, which can be taught to name a class that is not there."""

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if not isinstance(obj, Object):
            super().save(obj, save_persistent_id)
            return
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.write(pickle.EMPTY_TUPLE + pickle.NEWOBJ)
        super().save(obj.state)
        self.write(pickle.BUILD)


def pickled(value: Any) -> bytes:
    out = io.BytesIO()
    _Pickler(out, protocol=2).dump(value)
    return out.getvalue()


def torch_bytes(value: Any, *, name: str = "archive", payload: int = 2000) -> bytes:
    """A zip of torch.save: `data.pkl` and one storage of `payload` random bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{name}/data.pkl", pickled(value))
        archive.writestr(f"{name}/byteorder", "little")
        archive.writestr(f"{name}/data/0", os.urandom(payload))
        archive.writestr(f"{name}/version", "3\n")
    return out.getvalue()


def torch_file(path: Path, value: Any, *, payload: int = 2000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(torch_bytes(value, name=path.stem, payload=payload))


def safetensors_file(path: Path, *names: str, size: int = 64) -> None:
    """float32 tensors of `size` elements, of random bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for at, name in enumerate(names):
        span = [at * size * 4, (at + 1) * size * 4]
        header[name] = {"dtype": "F32", "shape": [size], "data_offsets": span}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + os.urandom(len(names) * size * 4))


def safetensors_index(path: Path, weights: Mapping[str, str], *, size: int = 64) -> None:
    total = len(weights) * size * 4
    content = {"metadata": {"total_size": total}, "weight_map": dict(weights)}
    path.write_text(json.dumps(content))


def json_file(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def dcp_directory(
    directory: Path,
    keys: Mapping[str, Any],
    *,
    ranks: int = 2,
    save_id: str = "a",
    payload: int = 500,
    plain_rank: int = 0,
) -> None:
    """`keys`: name -> what its zip holds (None: a tensor's bytes). Each rank has a part of each
    tensor; plain values lie with `plain_rank`, before the tensors: DCP gives them to the rank with
    the fewest bytes. Shards first, `.metadata` last, as DCP does."""
    directory.mkdir(parents=True, exist_ok=True)
    storage: dict[Any, Any] = {}
    base = "torch.distributed.checkpoint"
    for rank in range(ranks):
        content = b""
        for key, value in sorted(keys.items(), key=lambda item: item[1] is None):
            if rank != plain_rank and value is not None:
                continue
            piece = torch_bytes(value, payload=payload)
            index = Object(f"{base}.metadata", "MetadataIndex", {"fqn": key, "index": rank})
            place = {"relative_path": f"__{rank}_0.distcp", "offset": len(content)}
            place |= {"length": len(piece)}
            storage[index] = Object(f"{base}.filesystem", "_StorageInfo", place)
            content += piece
        (directory / f"__{rank}_0.distcp").write_bytes(content)
    meta = Object(f"{base}.metadata", "StorageMeta", {"save_id": save_id})
    state = {
        "state_dict_metadata": dict.fromkeys(keys),
        "storage_data": storage,
        "storage_meta": meta,
    }
    (directory / ".metadata").write_bytes(pickled(Object(f"{base}.metadata", "Metadata", state)))


def age(root: Path, *, seconds: int = 100) -> None:
    """All files as if they had been written that long ago, all at the same time."""
    for path in root.rglob("*"):
        if path.is_file():
            status = path.stat()
            when = status.st_mtime_ns - seconds * 1_000_000_000
            os.utime(path, ns=(when, when))
