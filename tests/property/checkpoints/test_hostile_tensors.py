"""Readers of names and numbers on hostile pickles: an answer or MalformedError, in bounded time."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.trainers.counter import write_checkpoint
from rtj_sidecar.checkpoints import finite, required
from rtj_sidecar.checkpoints.formats import tensors
from rtj_sidecar.checkpoints.formats.base import DEFAULT_CAPS, MalformedError, Window
from rtj_sidecar.checkpoints.inspect import inspect_path
from rtj_sidecar.checkpoints.reader import Reader


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("good") / "ckpt_1.pt"
    write_checkpoint(path, step=1, state=7)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: dict[str, bytes], pickle: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, pickle if name.endswith("/data.pkl") else data)
    return content.getvalue()


EDITS = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 6), st.binary(max_size=6)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(edits=EDITS)
def test_a_changed_pickle_is_read_or_refused(
    edits: list[tuple[int, int, bytes]],
    members: dict[str, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    data = bytearray(next(d for name, d in members.items() if name.endswith("/data.pkl")))
    for at, gone, new in edits:
        at %= max(1, len(data))
        data[at : at + gone] = new
    place = tmp_path_factory.getbasetemp() / "hostile.pt"
    place.write_bytes(packed(members, bytes(data)))
    with open(place, "rb") as file:
        window = Window(file.fileno(), 0, place.stat().st_size)
        try:
            found = tensors.of_torch(window, caps=DEFAULT_CAPS)
        except MalformedError:
            return
    for tensor in found.tensors:
        assert 0 <= tensor.offset <= tensor.offset + tensor.length <= window.size


def views(count: int, storage_values: int) -> bytes:
    """A pickle of `count` tensors that all show nearly the whole of one storage."""

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little")

    rows = []
    for at in range(count):
        storage = (
            b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
            + number(storage_values)
            + b"tQ"
        )
        size = number(storage_values - at % 16)
        rows.append(
            b"X\x04\x00\x00\x00"
            + f"w{at % 1000:03d}".encode()
            + b"ctorch._utils\n_rebuild_tensor_v2\n("
            + storage
            + number(at % 16)
            + (size + b"\x85" + number(1) + b"\x85")
            + b"\x89NtR"
        )
    return b"\x80\x02}(X\x05\x00\x00\x00model}(" + b"".join(rows) + b"uX\x04\x00\x00\x00stepK\x01u."


def test_a_thousand_views_of_one_storage_are_read_no_more_than_twice(tmp_path: Path) -> None:
    values = 50_000
    members = {"c/data.pkl": b"", "c/data/0": b"\0" * (4 * values), "c/version": b"3\n"}
    (tmp_path / "ckpt_1.pt").write_bytes(packed(members, views(1000, values)))
    ((save, _),) = inspect_path(tmp_path)
    found = finite.numbers_of(save, Reader(tmp_path))
    assert isinstance(found["bytes"], int)
    assert isinstance(found["skipped"], int)
    assert 0 < found["bytes"] <= 2 * save.size
    assert found["skipped"] > 0
    told = required.required_of(save, Reader(tmp_path), patterns=["model.w001", "optimizer"])
    assert (told.held, told.missing) == (("model.w001",), ("optimizer",))
