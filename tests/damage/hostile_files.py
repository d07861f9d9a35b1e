"""The bytes of files that are made to harm, each built when its case runs."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from kit.damage import Damage
from kit.handmade import Object, pickled, torch_bytes
from kit.handmade_others import LEGACY_MAGIC, block_bytes, table_bytes

from damage.acts import replaced

PT = "ckpt_1000.pt"


class Payload:
    """Leaves a file when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch EXECUTED",)


def made(name: str, build: Callable[[], bytes]) -> Damage:
    """Built only when the case runs: some are large."""

    def do(root: Path) -> None:
        replaced(name, build())(root)

    return do


def zip_of(members: dict[str, bytes], *, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def torch_of(data: bytes, **more: bytes) -> bytes:
    return zip_of({"a/data.pkl": data, "a/data/0": b"tensor" * 50, **more})


def _text(value: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value


def deep_pickle() -> bytes:
    return torch_of(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".")


def copies_of_one_text() -> bytes:
    """A hundred thousand times a new megabyte, from one in the memo."""
    head = b"\x80\x02" + b"c_codecs\nencode\nq\0" + _text(b"x" * (1 << 20)) + b"\x85q\x01"
    return torch_of(head + b"h\0h\x01R" * 100_000 + b".")


def one_name_of_every_length() -> bytes:
    head = b"\x80\x02" + _text(b"m" * (1 << 20)) + b"q\0"
    return torch_of(head + b"h\0h\0\x93" * 100_000 + b".")


def large_keys() -> bytes:
    """A number of a megabyte as the key of a dict, again and again."""
    number = b"\x8b" + struct.pack("<I", 1 << 20) + b"\x01" * (1 << 20) + b"q\0"
    return torch_of(b"\x80\x02" + number + b"0}" + b"h\0Ns" * 20_000 + b".")


def laughing_key() -> bytes:
    """The legacy form's list of keys holds a tuple that doubles sixty times."""
    parts = [pickle.dumps(part, 2) for part in (1001, {}, {"step": 1, "optimizer": {}})]
    return LEGACY_MAGIC + b"".join(parts) + b"\x80\x02](" + _text(b"a") + b"2\x86" * 60 + b"e."


def zip_bomb() -> bytes:
    return zip_of(
        {"a/data.pkl": pickled({"step": 1000}), "a/data/0": bytes(70 << 20)},
        method=zipfile.ZIP_DEFLATED,
    )


def many_bombs() -> bytes:
    piece = bytes(20 << 20)
    members = {f"a/data/{at}": piece for at in range(4)}
    return zip_of({"a/data.pkl": pickled({"step": 1000}), **members}, method=zipfile.ZIP_DEFLATED)


def _directory(entries: list[bytes], *, body: bytes = b"", count: int | None = None) -> bytes:
    directory = b"".join(entries)
    number = len(entries) if count is None else count
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, number, number,
                        len(directory), len(body))  # fmt: skip
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(body) + len(directory), 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return body + directory + end64 + locator + end


def _entry(name: bytes, *, size: int = 0, packed: int = 0, offset: int = 0, crc: int = 0) -> bytes:
    head = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 0, crc, packed, size,
                       len(name), 0, 0, 0, 0, 0, offset)  # fmt: skip
    return head + name


def million_members() -> bytes:
    # The first bytes must be those of a zip file.
    body = b"PK\3\4" + bytes(26)
    head = _entry(b"0000000")[:-7]
    return _directory([head + b"%07d" % at for at in range(1_000_000)], body=body)


def lying_size() -> bytes:
    body = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0, 1, 9, 9, 10, 0) + b"a/data.pklxxx"
    return _directory([_entry(b"a/data.pkl", size=1 << 31, packed=1 << 31, crc=1)], body=body)


def lying_count() -> bytes:
    return _directory([_entry(b"a/data.pkl")], body=b"PK\3\4" + bytes(26), count=1 << 40)


def lying_offset() -> bytes:
    body = b"PK\3\4" + bytes(26)
    return _directory([_entry(b"a/data.pkl", size=1, packed=1, offset=0xFFFFFF00)], body=body)


def overlapping_members() -> bytes:
    content = pickled({"step": 1000})
    crc = zlib.crc32(content)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0, crc, len(content), len(content),
                        10, 0)  # fmt: skip
    body = local + b"a/data.pkl" + content
    facts = {"size": len(content), "packed": len(content), "crc": crc}
    one = _entry(b"a/data.pkl", **facts)
    return _directory([one, one.replace(b"a/data.pkl", b"a/data.pkm")], body=body)


def twice_the_same_name() -> bytes:
    content = torch_of(pickled({"step": 1000}), **{"a/data/9": b"x"})
    return content.replace(b"a/data/9", b"a/data/0")


def packed_member(root: Path) -> None:
    """Ten bytes, said to lie packed in two gigabytes: read those whole and memory is gone."""
    size = 2 << 30
    with open(root / PT, "r+b") as file:
        file.truncate(0)
        head = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 8, 0, 0, 1, 9, 9, 10, 0)
        file.write(head + b"a/data.pkl")
        file.seek(40 + size)
        entry = _entry(b"a/data.pkl", size=9, packed=size, crc=1)
        entry = entry[:10] + struct.pack("<H", 8) + entry[12:]
        end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(entry), 40 + size, 0)
        file.write(entry + end)


def chain_of_nothing() -> bytes:
    """A shard of three million empty archives, one after the other."""
    empty = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0)
    return torch_bytes({"a": 1}, payload=10) + empty * 400_000


def huge_header() -> bytes:
    return struct.pack("<Q", 90_000_000) + b"{" + bytes(90_000_000)


def header_of_tiny_values() -> bytes:
    text = b'{"a":[' + b"[]," * 10_000_000 + b"[]]}"
    return struct.pack("<Q", len(text)) + text


def deep_json() -> bytes:
    return b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"


def impossible_shape() -> bytes:
    text = b'{"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}'
    return struct.pack("<Q", len(text)) + text + bytes(8)


def overlapping_tensors() -> bytes:
    entry = b'{"dtype":"U8","shape":[8],"data_offsets":[0,8]}'
    text = b'{"v":' + entry + b',"w":' + entry + b"}"
    return struct.pack("<Q", len(text)) + text + bytes(8)


def metadata_of(path: str, *, offset: int = 0, length: int = 10) -> bytes:
    base = "torch.distributed.checkpoint"
    place = Object(f"{base}.filesystem", "_StorageInfo", {
        "relative_path": path, "offset": offset, "length": length})  # fmt: skip
    index = Object(f"{base}.metadata", "MetadataIndex", {"fqn": "model.w"})
    state = {"state_dict_metadata": {"model.w": None}, "storage_data": {index: place}}
    return pickled(Object(f"{base}.metadata", "Metadata", state))


def table_of_tiny_entries() -> bytes:
    body = b"\0\0\0" * 3_000_000
    return table_bytes(block_bytes({b"": b"\x08\x01"}), body + struct.pack("<II", 0, 1))


def state_of_many_ranks() -> bytes:
    state = {"dp_world_size": 1 << 60, "mp_world_size": 1 << 60, "param_shapes": [{}]}
    return torch_of(pickled({**state, "global_steps": 1000, "optimizer": {}}))


def grid_without_end() -> bytes:
    sizes = {"tensor_model_parallel_size": 1 << 60, "pipeline_model_parallel_size": 1 << 60}
    state = {"args": Object("argparse", "Namespace", sizes), "iteration": 1000, "model": {}}
    return torch_of(pickled({**state, "optimizer": {}}))


def payload() -> bytes:
    return torch_of(pickle.dumps({"step": 1000, "optimizer": {"state": Payload()}}, 2))


def payload_of_each_opcode() -> bytes:
    """The same by INST, OBJ, NEWOBJ, BUILD, and an extension's code."""
    call = b"(" + _text(b"touch EXECUTED") + b"ios\nsystem\n0"
    made_by = b"(cos\nsystem\n" + _text(b"touch EXECUTED") + b"o0"
    new = b"cos\nsystem\n" + _text(b"touch EXECUTED") + b"\x85\x81}b0\x82\x010"
    state = pickled({"step": 1000, "optimizer": {}})[2:]
    return torch_of(b"\x80\x02" + call + made_by + new + state)
