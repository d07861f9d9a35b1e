"""Whatever bytes stand in a checkpoint, the readers answer: they never crash, hang or execute."""

from __future__ import annotations

import os
import pickle
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.checkpoint_looks import judged
from kit.inert_values import kinds_in, kinds_that_are_inert
from rtj_sidecar.checkpoints.formats import dcp, sniff, stub
from rtj_sidecar.checkpoints.formats.base import Caps, MalformedError, Window
from rtj_sidecar.checkpoints.types import Status

CAPS = Caps(pickle_operations=20_000, pickle_seconds=2.0, zip_directory_bytes=1 << 20)
bounded = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


def read_or_none(content: bytes) -> Any:
    """None where it is refused; anything but a MalformedError fails the test."""
    try:
        return stub.load(content, caps=CAPS)
    except MalformedError:
        return None


def in_window(content: bytes, look: Any) -> Any:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        return look(Window(file.fileno(), 0, len(content)))


def checked(content: bytes, name: str) -> bool | None:
    """The check's answer; a MalformedError is one, anything else fails the test."""
    try:
        return in_window(
            content,
            lambda window: sniff.check_file(window, bytearray(4096), name=name, caps=CAPS).passed,
        )
    except MalformedError:
        return False


@bounded
@given(value=plain, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_come_back_as_they_were(value: object, protocol: int) -> None:
    assert stub.load(pickle.dumps(value, protocol), caps=CAPS) == value


@bounded
@given(data=st.binary(max_size=300))
def test_any_bytes_are_a_pickle_or_refused(data: bytes) -> None:
    assert kinds_in(read_or_none(data)) <= kinds_that_are_inert()


opcodes = st.sampled_from([bytes([code]) for code in b"()]}.0123Nabcdeghijloprstu\x81\x85\x86\x87"])


@bounded
@given(pieces=st.lists(opcodes | st.binary(min_size=1, max_size=3), max_size=60))
def test_any_order_of_opcodes_is_read_or_refused(pieces: list[bytes]) -> None:
    assert kinds_in(read_or_none(b"".join(pieces) + b".")) <= kinds_that_are_inert()


@bounded
@given(
    value=plain,
    cut=st.floats(0, 1, exclude_max=True),
    name=st.sampled_from(["a.pt", "a.safetensors", "a.json", "__0_0.distcp", "a.bin"]),
)
def test_a_cut_off_torch_zip_never_passes(value: object, cut: float, name: str) -> None:
    whole = _torch_zip(pickle.dumps({"step": 1, "x": value}, 2))
    assert checked(whole, "a.pt") is True
    assert checked(whole[: int(len(whole) * cut)], name) is not True


@bounded
@given(data=st.data())
def test_a_changed_byte_of_a_member_is_found(data: st.DataObject) -> None:
    body = b"the tensor: " + data.draw(st.binary(min_size=1, max_size=200))
    content = bytearray(_torch_zip(pickle.dumps({"step": 1}, 2), body))
    at = bytes(content).index(b"the tensor: ")
    position = at + data.draw(st.integers(0, len(body) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    assert checked(bytes(content), "a.pt") is False


@bounded
@given(
    data=st.binary(max_size=400),
    name=st.sampled_from(["a.pt", "a.safetensors", "a.json", "__0_0.distcp", "a.tar", "x"]),
    head=st.sampled_from(
        [b"", b"PK\x03\x04", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19", b"\x10" + bytes(7)]
    ),
)
def test_any_bytes_under_any_name_get_an_answer(data: bytes, name: str, head: bytes) -> None:
    assert checked(head + data, name) in (True, False, None)


@bounded
@given(data=st.binary(max_size=300))
def test_any_bytes_are_dcp_metadata_or_refused(data: bytes) -> None:
    try:
        found = in_window(data, lambda window: dcp.read_metadata(window, caps=CAPS))
    except MalformedError:
        return
    assert kinds_in(found.keys) <= {tuple, str}
    assert all(size >= 0 for size in found.sizes().values())


@settings(max_examples=40, deadline=None)
@given(
    tree=st.dictionaries(
        st.sampled_from(
            [
                "ckpt_1.pt",
                "step_2/model.pt",
                "step_2/.metadata",
                "step_2/__0_0.distcp",
                "checkpoint-3/trainer_state.json",
                "checkpoint-3/model.safetensors",
                "step_4/model-00001-of-00002.safetensors",
                "step_4/model.safetensors.index.json",
                "latest",
                "last.pt",
            ]
        ),
        st.binary(max_size=120) | st.just(b"{}") | st.just(b"step_2"),
        max_size=8,
    )
)
def test_no_tree_of_garbage_is_ever_a_candidate_by_proof(tree: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        for path, content in tree.items():
            place = Path(name, path)
            os.makedirs(place.parent, exist_ok=True)
            place.write_bytes(content)
        for _, verdict in judged(Path(name)).values():
            assert verdict.status in (Status.TORN, Status.SETTLED), verdict.message


def _torch_zip(content: bytes, body: bytes = b"tensor") -> bytes:
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a/data.pkl", content)
            archive.writestr("a/data/0", body)
        file.seek(0)
        return file.read()
