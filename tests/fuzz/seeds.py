"""Where fuzzing begins: one or two good inputs for each reader, made anew, and those that were bad.

Nothing binary lies in the tree: what fuzzing found is kept in `found.txt` as `reader hex` lines.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from kit.handmade import Object, dcp_directory, pickled, torch_bytes
from kit.handmade_hdf5 import hdf5_bytes
from kit.handmade_others import ocdbt_bytes, table_bytes
from rtj_sidecar.checkpoints.formats import sstable

FOUND = Path(__file__).with_name("found.txt")
_STATE = {"step": 7, "epoch": 1, "loss": 0.5, "optimizer": {"state": {0: [1, 2]}}, "x": (1, b"a")}


def seeds() -> Iterator[tuple[str, bytes]]:
    """(reader, content), each accepted by its reader."""
    for protocol in range(6):
        yield "pickle", pickle.dumps(_STATE, protocol)
    yield "pickle", pickled({"args": Object("argparse", "Namespace", {"a": 1}), "step": 3})
    zipped = torch_bytes(_STATE, payload=40)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickled(_STATE))
        archive.writestr("a/data/0", b"0" * 500)
    yield "torch-zip", zipped
    yield "torch-zip", packed.getvalue()
    yield "state-in-torch-zip", pickled(_STATE)
    header = {"__metadata__": {"format": "pt"}}
    header |= {"a": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}  # type: ignore[dict-item]
    text = json.dumps(header).encode()
    yield "safetensors-header", text
    yield "safetensors", struct.pack("<Q", len(text)) + text + bytes(64)
    with tempfile.TemporaryDirectory() as name:
        dcp_directory(Path(name), {"model.w": None, "step": 3}, ranks=1)
        yield "dcp-metadata", Path(name, ".metadata").read_bytes()
    yield "dcp-shard", zipped + zipped
    yield "torch-legacy", legacy_bytes()
    yield "hdf5", hdf5_bytes({"w": bytes(32), "layers/a": bytes(16)})
    yield "tf-entries", tf_block()
    yield "tf-index", table_bytes(tf_block())
    yield "json", json.dumps(_STATE | {"x": [1, None, 1e3]}, default=str).encode()
    yield "proto", b"\x08\x01\x12\x03abc\x1d\0\0\0\0"
    yield "ocdbt-manifest", ocdbt_bytes(b"\0\1" + bytes(range(60)), manifest=True)
    yield "ocdbt-data", ocdbt_bytes(bytes(range(60)), manifest=False)
    yield "ocdbt-data", b"values of an array" * 4
    yield "ocdbt-body", bytes(range(60))
    told = {"item_handlers": {"default": "x"}, "metrics": {"loss": 0.5, "epoch": 2}}
    yield "orbax-marker", json.dumps({**told, "commit_timestamp_nsecs": 1}).encode()
    yield "orbax-tree", b'{"tree_metadata": {"(\'params\', \'w\')": {}}, "use_ocdbt": true}'
    state = b'model_checkpoint_path: "ckpt-7"\nall_model_checkpoint_paths: "ckpt-7"\n'
    yield "tf-state", state + b"all_model_checkpoint_timestamps: 1.5\n"
    for kind, content in ((0, zipped), (2, text), (3, zipped + zipped), (5, hdf5_bytes({}))):
        yield "any-file", bytes([kind]) + content


def legacy_bytes() -> bytes:
    """What follows the magic number in a file of torch.save's older form, without a storage."""
    parts = [1001, {"protocol_version": 1001, "little_endian": True}, _STATE, []]
    return b"".join(pickle.dumps(part, 2) for part in parts)


def tf_block() -> bytes:
    """One block of a bundle's index: its header and one float32 tensor of two elements."""
    entry = b"\x08\x01\x12\x04\x12\x02\x08\x02\x28\x08\x35"
    block = bytes([0, 0, 2]) + b"\x08\x01" + bytes([0, 1, len(entry) + 4])
    # The fuzzed file is index and data in one: its tensor is the first eight bytes of it.
    block += b"w" + entry + sstable.masked_crc32c(block).to_bytes(4, "little")
    return block + struct.pack("<II", 0, 1)


def found() -> Iterator[tuple[str, bytes]]:
    """What once broke a reader."""
    for line in FOUND.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, content = line.partition(" ")
            yield name, bytes.fromhex(content)
