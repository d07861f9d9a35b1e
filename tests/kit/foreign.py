"""Checkpoints that another's trainer left in a directory or a bucket, for tests of imports."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtj_sidecar.stores.base import Store


def torch_bytes(*, weights_only: bool = False, **state: Any) -> bytes:
    """A file as `torch.save` writes it: with an optimizer's state unless `weights_only`."""
    content = {"model": {"weight": b"w" * 500}, **state}
    if not weights_only:
        content["optimizer"] = {"state": {0: {"exp_avg": [0.0]}}, "param_groups": [{"lr": 0.1}]}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", b"tensor" * 40_000)
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


def torn(data: bytes) -> bytes:
    """The same size, and a block of zeros where tensors were: nothing but a checksum tells."""
    at = data.index(b"tensortensor")
    return data[: at + 600] + bytes(4096) + data[at + 600 + 4096 :]


def playbook(*entries: Mapping[str, Any], latest: str | None = None) -> bytes:
    whole = [
        {"epoch": None, "step": None, "validation_loss": None, "timestamp": "t", "is_valid": True}
        | dict(entry)
        for entry in entries
    ]
    return json.dumps({"checkpoints": whole, "latest_valid_checkpoint": latest}).encode()


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def put_files(store: Store, prefix: str, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        store.put(f"{prefix}/{path}" if prefix else path, data)
