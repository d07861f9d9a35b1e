"""Every reader of a checkpoint's bytes as a function of bytes, with what must hold for any bytes.

Shared by the long fuzzing command (`make fuzz`) and by its short twin in CI. A reader answers, or
raises MalformedError; anything else, a value that is no plain data, or an answer that the standard
library's own reader contradicts, is a defect.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable, Mapping

from awscrt.checksums import crc32c
from kit.handmade_others import ocdbt_bytes, table_bytes
from kit.inert_values import kinds_in, kinds_that_are_inert
from rtj_sidecar.checkpoints.formats import (
    dcp,
    hdf5,
    jsonfile,
    ocdbt,
    proto,
    safetensors,
    sniff,
    stub,
    tfbundle,
    torchlegacy,
    torchzip,
)
from rtj_sidecar.checkpoints.formats.base import Caps, MalformedError, Window

from fuzz import trees

CAPS = Caps(
    pickle_bytes=1 << 20,
    pickle_operations=20_000,
    pickle_seconds=2.0,
    zip_directory_bytes=1 << 20,
    inflated_bytes=1 << 20,
    json_bytes=1 << 20,
)
_NAMES = ("a.pt", "a.safetensors", "a.json", "__0_0.distcp", "a.bin", "a.h5", "a.keras", "x")

Reader = Callable[[bytes], object]


class Contradiction(AssertionError):
    """A reader accepted what it must not accept."""


def _in_window(content: bytes, look: Callable[[Window], object]) -> object:
    descriptor = os.memfd_create("fuzz")
    try:
        os.write(descriptor, content)
        return look(Window(descriptor, 0, len(content)))
    finally:
        os.close(descriptor)


def _any_file(content: bytes) -> object:
    name, body = _NAMES[content[0] % len(_NAMES)] if content else "x", content[1:]

    def look(window: Window) -> object:
        return sniff.check_file(window, bytearray(4096), name=name, caps=CAPS)

    return _in_window(body, look)


def _pickle(content: bytes) -> object:
    value = stub.load(content, caps=CAPS)
    if strange := kinds_in(value) - kinds_that_are_inert():
        raise Contradiction(f"a pickle made {strange}")
    return value


def _torch_zip(content: bytes) -> object:
    """The bytes are a whole file. What passes, the standard library must find whole, too."""

    def look(window: Window) -> object:
        return torchzip.check(window, bytearray(4096), caps=CAPS)

    found = _in_window(content, look)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if getattr(found, "facts", {}).get("crc") and (bad := archive.testzip()):
            raise Contradiction(f"member {bad!r} passed, but its CRC-32 is wrong")
    return found


def _state_in_torch_zip(content: bytes) -> object:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a/data.pkl", content)
        archive.writestr("a/data/0", b"tensor")
    return _torch_zip(out.getvalue())


def _safetensors(content: bytes) -> object:
    return _in_window(content, lambda window: safetensors.check(window, caps=CAPS))


def _safetensors_header(content: bytes) -> object:
    return _safetensors(struct.pack("<Q", len(content)) + content + bytes(64))


def _dcp_metadata(content: bytes) -> object:
    found = _in_window(content, lambda window: dcp.read_metadata(window, caps=CAPS))
    assert isinstance(found, dcp.Metadata)
    if any(size < 0 for size in found.sizes().values()):
        raise Contradiction("a shard of negative size")
    return found


def _dcp_shard(content: bytes) -> object:
    def look(window: Window) -> object:
        return dcp.check_shard(window, bytearray(4096), slices=None, caps=CAPS)

    return _in_window(content, look)


def _legacy(content: bytes) -> object:
    whole = torchzip.LEGACY_MAGIC + content
    return _in_window(whole, lambda window: torchlegacy.check(window, caps=CAPS))


def _hdf5(content: bytes) -> object:
    def look(window: Window) -> object:
        found = hdf5.read(window, caps=CAPS)
        return [hdf5.whole_number(window, dataset) for dataset in found.datasets.values()]

    return _in_window(content, look)


def _tf_index(content: bytes) -> object:
    return _in_window(content, lambda window: tfbundle.read_index(window, caps=CAPS))


def _tf_entries(content: bytes) -> object:
    """The bytes are what stands in the index's one block; they are read as data's places, too."""

    def look(window: Window) -> object:
        found = tfbundle.read_index(window, caps=CAPS)
        return tfbundle.check_data(window, bytearray(4096), tensors=found.of_shard(0))

    return _in_window(table_bytes(content), look)


def _json(content: bytes) -> object:
    return _in_window(content, lambda window: jsonfile.load(window, caps=CAPS))


def _proto(content: bytes) -> object:
    return list(proto.fields(content))


def _ocdbt(content: bytes, *, manifest: bool) -> object:
    found = _in_window(content, lambda window: ocdbt.check(window, manifest=manifest, caps=CAPS))
    passed = getattr(found, "passed", None)
    if passed and crc32c(content[:-4]) != int.from_bytes(content[-4:], "little"):
        raise Contradiction("a node passed, but its CRC-32C is wrong")
    if manifest and passed is None:
        raise Contradiction("a manifest was not checked")
    return found


def _ocdbt_body(content: bytes) -> object:
    """The bytes are what stands between a right header and a right checksum."""
    return _ocdbt(ocdbt_bytes(content, manifest=True), manifest=True)


READERS: Mapping[str, Reader] = {
    "any-file": _any_file,
    "pickle": _pickle,
    "torch-zip": _torch_zip,
    "state-in-torch-zip": _state_in_torch_zip,
    "safetensors": _safetensors,
    "safetensors-header": _safetensors_header,
    "dcp-metadata": _dcp_metadata,
    "dcp-shard": _dcp_shard,
    "torch-legacy": _legacy,
    "hdf5": _hdf5,
    "tf-index": _tf_index,
    "tf-entries": _tf_entries,
    "json": _json,
    "proto": _proto,
    "ocdbt-manifest": lambda content: _ocdbt(content, manifest=True),
    "ocdbt-data": lambda content: _ocdbt(content, manifest=False),
    "ocdbt-body": _ocdbt_body,
    "orbax-marker": trees.orbax_marker,
    "orbax-tree": trees.orbax_tree,
    "tf-state": trees.tf_state,
}


def try_one(name: str, content: bytes) -> bool:
    """Whether the reader accepted the bytes. Raises whatever is a defect."""
    try:
        READERS[name](content)
    except MalformedError:
        return False
    return True
