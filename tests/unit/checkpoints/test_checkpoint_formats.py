"""Formats made by hand: what no framework writes, but a broken disk or a hostile person might."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
from rtj_sidecar.checkpoints.formats import facts, sniff, stub, zips
from rtj_sidecar.checkpoints.formats.base import CHUNK, Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.inert import Stub
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.scan import entry_of
from rtj_sidecar.checkpoints.types import Reason


def check(path: Path, *, caps: Caps | None = None, name: str | None = None) -> FileCheck:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        window = Window(descriptor, 0, os.fstat(descriptor).st_size)
        return sniff.check_file(
            window, bytearray(CHUNK), name=name or path.name, caps=caps or Caps()
        )
    finally:
        os.close(descriptor)


def refused(path: Path, **options: Caps) -> MalformedError:
    with pytest.raises(MalformedError) as caught:
        check(path, **options)
    return caught.value


# --- pickles ---


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return (os.system, (f"touch {self.mark}",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_comes_back_and_calls_stay_stubs(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "executed"
    value = {
        "step": 7,
        "loss": 0.5,
        "big": 1 << 80,
        "text": "grün",
        "raw": b"\x00\xff",
        "flags": [True, False, None],
        "pair": (1, (2, 3)),
        "ordered": OrderedDict(a=1),
        "evil": Evil(mark),
    }
    read = stub.load(pickle.dumps(value, protocol))
    for key in ("step", "loss", "big", "text", "flags", "pair"):
        assert read[key] == value[key]
    assert read["ordered"] == {"a": 1}
    assert isinstance(read["evil"], Stub)
    assert read["evil"].name in ("posix.system", "nt.system")
    assert not mark.exists()


def test_objects_keep_their_attributes_and_nothing_is_imported() -> None:
    class_by_name = b"\x80\x02cno_such_module\nThing\n)\x81}X\x04\x00\x00\x00stepK\x05sb."
    value = stub.load(class_by_name)
    assert value.name == "no_such_module.Thing"
    assert value.get("step") == 5
    assert facts.from_state(value)["step"] == 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"0.",
        b"K\x01",
        b"}K\x01s.",
        b"(K\x01u.",
        b"]K\x01K\x02s.",
        b"h\x07.",
        b"\x85.",
        b"K\x01\x93.",
        b"\x97.",
        b"X\xff\xff\xff\x7fabc.",
        b"I12x\n.",
        b"not a pickle at all",
    ],
)
def test_broken_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        stub.load(data)


def test_a_pickle_that_contains_itself_does_not_hang() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert facts.from_state(stub.load(pickle.dumps({"step": 1, "x": loop})))["step"] == 1


def test_caps_on_bytes_operations_and_seconds() -> None:
    many = pickle.dumps(list(range(5000)))
    for caps in (Caps(pickle_bytes=100), Caps(pickle_operations=100), Caps(pickle_seconds=-1.0)):
        with pytest.raises(MalformedError, match="cap"):
            stub.load(many, caps=caps)


def test_nested_tuples_as_a_key_do_not_overflow_the_stack() -> None:
    deep = b"}" + b")" + b"\x85" * 200_000 + b"K\x01s."
    assert len(stub.load(deep)) == 1


def test_colliding_keys_run_into_the_deadline() -> None:
    modulus = (1 << 61) - 1
    keys = b"".join(
        b"\x8a\x0a" + (modulus * number).to_bytes(10, "little") + b"N"
        for number in range(1, 20_000)
    )
    with pytest.raises(MalformedError, match="longer to read"):
        stub.load(b"}(" + keys + b"u.", caps=Caps(pickle_seconds=0.05))


def test_facts_stay_plain_json() -> None:
    value = {
        "step": 3.0,
        "epoch": True,
        "loss": float("nan"),
        "best_loss": 0.1,
        "best_model": Stub("x"),
        7: "number as a key",
        "x" * 1000: 1,
    }
    read = facts.from_state(value)
    assert read["step"] == 3
    assert "epoch" not in read
    assert "loss" not in read
    assert read["best"] == {"best_loss": 0.1}
    json.dumps(read, allow_nan=False)
    assert "step" not in facts.from_state({"step": -1})
    assert "step" not in facts.from_state({"step": 1 << 70})


def test_settings_that_name_an_optimizer_hold_none() -> None:
    arguments = {"optim": "adamw", "optim_args": None, "optimizer_name": "sgd"}
    assert facts.from_state(arguments)["full_state"] is False
    assert facts.from_state({"optimizer": {"state": {}}})["full_state"] is True


def test_a_step_one_level_below_the_top() -> None:
    assert facts.from_state({"trainer": {"global_step": 9, "epoch": 2}})["step"] == 9
    assert facts.from_state({"state": {0: {}}, "param_groups": []})["full_state"] is True


# --- zips ---


def torch_zip(path: Path, members: dict[str, bytes], *, packed: bool = False) -> Path:
    how = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


PICKLE = pickle.dumps({"step": 1}, 2)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = torch_zip(
        tmp_path / "a.pt", {"a/data.pkl": PICKLE, "a/data/0": bytes(64 << 20)}, packed=True
    )
    error = refused(bomb, caps=Caps(inflated_bytes=1 << 20))
    assert error.reason is Reason.UNSAFE_ENTRY
    assert "a/data/0" in str(error)
    pickled = torch_zip(tmp_path / "b.pt", {"b/data.pkl": PICKLE + bytes(1 << 20)}, packed=True)
    assert "cap" in str(check(pickled, caps=Caps(pickle_bytes=1000)).facts["unread"])


def test_packed_members_are_checked_too(tmp_path: Path) -> None:
    path = torch_zip(
        tmp_path / "a.pt", {"a/data.pkl": PICKLE, "a/data/0": os.urandom(100_000)}, packed=True
    )
    assert check(path).passed is True
    content = bytearray(path.read_bytes())
    content[50_000] ^= 1
    path.write_bytes(content)
    assert refused(path).reason in (Reason.CHECKSUM_MISMATCH, Reason.MALFORMED)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "..\\b"])
def test_members_that_leave_the_archive_are_refused(tmp_path: Path, name: str) -> None:
    path = torch_zip(tmp_path / "a.pt", {"a/data.pkl": PICKLE, name: b"x"})
    error = refused(path)
    assert error.reason is Reason.UNSAFE_ENTRY


def test_bytes_before_or_after_the_archive_are_refused(tmp_path: Path) -> None:
    whole = torch_zip(tmp_path / "a.pt", {"a/data.pkl": PICKLE}).read_bytes()
    (tmp_path / "a.pt").write_bytes(b"PK\x03\x04" + whole)
    assert "foreign bytes" in str(refused(tmp_path / "a.pt"))
    (tmp_path / "a.pt").write_bytes(whole + b"more")
    assert refused(tmp_path / "a.pt").reason is Reason.TRUNCATED


def test_a_comment_at_the_end_is_no_harm(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", PICKLE)
        archive.comment = b"saved by hand"
    assert check(tmp_path / "a.pt").passed is True


def test_zip64_archives(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        with archive.open("a/data.pkl", "w", force_zip64=True) as member:
            member.write(PICKLE)
        with archive.open("a/data/0", "w", force_zip64=True) as member:
            member.write(bytes(1000))
    assert check(tmp_path / "a.pt").passed is True


def test_a_sparse_file_beyond_four_gigabytes(tmp_path: Path) -> None:
    """Its zip64 records are real; its content is a hole, which the CRC of zeros matches."""
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", PICKLE)
    path = tmp_path / "a.pt"
    descriptor = os.open(path, os.O_RDONLY)
    window = Window(descriptor, 0, os.fstat(descriptor).st_size)
    archive_read = zips.read_archive(window, caps=Caps())
    os.close(descriptor)
    assert archive_read.start == 0
    far = 5 << 30
    whole = path.read_bytes()
    directory = archive_read.directory
    moved = bytearray(whole[directory:])
    entry_offset = 42
    assert struct.unpack_from("<L", moved, entry_offset) == (0,)
    struct.pack_into("<L", moved, entry_offset, 0xFFFFFFFF)
    struct.pack_into("<H", moved, 30, 12)
    name_end = 46 + len("a/data.pkl")
    extra = struct.pack("<2HQ", 1, 8, far)
    central = bytes(moved[:name_end]) + extra
    record = struct.pack(
        "<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(central), far + directory
    )
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, far + directory + len(central), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    with open(path, "wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(far)
        file.write(whole[:directory] + central + record + locator + end)
    assert check(path).facts["step"] == 1


# --- safetensors ---


def safetensors(path: Path, header: object, body: bytes, *, length: int | None = None) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + body)
    return path


ONE = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def test_the_exact_size_rule(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    assert check(safetensors(path, ONE, bytes(8))).passed is True
    assert refused(safetensors(path, ONE, bytes(7))).reason is Reason.TRUNCATED
    assert refused(safetensors(path, ONE, bytes(9))).reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (b"[]", b""),
        (b"{", b""),
        (b"{}" + b" " * 10 + b"x", b""),
        (b'{"a":' * 50_000, b""),
        ({"a": 1}, b""),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, bytes(8)),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, bytes(8)),
        ({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, bytes(4)),
        ({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 8]}}, bytes(8)),
        ({**ONE, "b": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}, bytes(8)),
        ({**ONE, "b": {"dtype": "U8", "shape": [1], "data_offsets": [9, 10]}}, bytes(10)),
    ],
)
def test_impossible_headers_are_refused(tmp_path: Path, header: object, body: bytes) -> None:
    why = refused(safetensors(tmp_path / "m.safetensors", header, body))
    assert why.reason in (Reason.MALFORMED, Reason.TRUNCATED)
    assert str(why), "it says what is wrong"


def test_a_header_length_beyond_the_file_or_the_cap(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    assert refused(safetensors(path, ONE, b"", length=1 << 20)).reason is Reason.TRUNCATED
    assert refused(safetensors(path, ONE, b"", length=1 << 60)).reason is Reason.MALFORMED
    path.write_bytes(bytes(4096))
    assert refused(path).reason is Reason.MALFORMED


def test_metadata_strings_are_kept(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "m.safetensors", {"__metadata__": {"step": "5"}, **ONE}, bytes(8))
    assert check(path).facts["metadata"] == {"step": "5"}


def test_a_cap_leaves_a_file_unchecked_and_never_condemns_it(tmp_path: Path) -> None:
    torch_zip(tmp_path / "ckpt_1.pt", {"a/data.pkl": PICKLE, "a/data/0": b"tensor"})
    (tmp_path / "state.json").write_text('{"step": 1}')
    small = Caps(pickle_bytes=1, json_bytes=1)
    assert check(tmp_path / "ckpt_1.pt", caps=small).facts["unread"]
    reader = Reader(tmp_path, caps=small)
    entry = entry_of("state.json", os.stat(tmp_path / "state.json"))
    assert common.check_of(reader, entry).passed is None
