"""Pins keep a finished save through rotation and overwriting, and change no file of the trainer."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from kit.checkpoint_looks import snapshot_of
from rtj_sidecar.checkpoints import pins
from rtj_sidecar.checkpoints.pin_choice import InodeHistory, PinHow, how_to_pin, next_history
from rtj_sidecar.checkpoints.pins import (
    PinError,
    disk_room,
    drop_pin,
    files_dir,
    list_pins,
    pin_entries,
    pin_save,
    sweep_pins,
)
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import FoundSave


def one_save(root: Path) -> FoundSave:
    (save,) = snapshot_of(root).saves
    return save


def write(root: Path, name: str, content: bytes) -> FoundSave:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return one_save(root)


def test_a_numbered_save_is_linked_and_survives_rotation(tmp_path: Path) -> None:
    save = write(tmp_path, "step_1/model.pt", b"one")
    reader = Reader(tmp_path)
    how = how_to_pin(save=save, history=InodeHistory())
    assert how == {"step_1/model.pt": PinHow.LINK}
    pin = pin_save(reader=reader, save=save, pin_id="p1", how=how)
    assert one_save(tmp_path).identity == save.identity
    (tmp_path / "step_1" / "model.pt").unlink()
    (tmp_path / "step_1").rmdir()
    kept = files_dir(tmp_path, "p1") / "step_1" / "model.pt"
    assert kept.read_bytes() == b"one"
    assert pin_entries(tmp_path, pin) is not None
    assert list_pins(tmp_path) == (pin,)


def test_a_reused_name_is_copied_and_survives_overwriting(tmp_path: Path) -> None:
    save = write(tmp_path, "ckpt.pt", b"first")
    how = how_to_pin(save=save, history=InodeHistory())
    assert how == {"ckpt.pt": PinHow.COPY}
    pin_save(reader=Reader(tmp_path), save=save, pin_id="p1", how=how)
    with open(tmp_path / "ckpt.pt", "r+b") as file:
        file.write(b"SECOND")
    assert (files_dir(tmp_path, "p1") / "ckpt.pt").read_bytes() == b"first"


def test_inode_history_decides(tmp_path: Path) -> None:
    history = InodeHistory()

    def look() -> dict[str, PinHow]:
        nonlocal history
        history = next_history(before=history, snapshot=snapshot_of(tmp_path))
        return how_to_pin(save=one_save(tmp_path), history=history)

    def replaced(content: bytes) -> None:
        (tmp_path / "fresh").write_bytes(content)
        os.replace(tmp_path / "fresh", tmp_path / "ckpt.pt")

    write(tmp_path, "ckpt.pt", b"a")
    assert look() == {"ckpt.pt": PinHow.COPY}, "unknown the first time"
    replaced(b"bb")
    assert look() == {"ckpt.pt": PinHow.LINK}
    (tmp_path / "ckpt.pt").write_bytes(b"ccc")
    assert look() == {"ckpt.pt": PinHow.COPY}
    replaced(b"dddd")
    assert look() == {"ckpt.pt": PinHow.COPY}, "once overwritten, never trusted again"


def test_a_file_that_changed_since_it_was_seen_is_not_pinned(tmp_path: Path) -> None:
    save = write(tmp_path, "step_1/model.pt", b"one")
    write(tmp_path, "step_1/model.pt", b"more than one")
    for how in PinHow:
        with pytest.raises(PinError, match="step_1"):
            pin_save(reader=Reader(tmp_path), save=save, pin_id="p", how={"step_1/model.pt": how})
    assert not (pins.pins_dir(tmp_path) / "p").exists()


@pytest.mark.parametrize("how", list(PinHow))
def test_a_file_that_changes_while_it_is_pinned_drops_the_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: PinHow
) -> None:
    save = write(tmp_path, "step_1/model.pt", b"one")

    def spoil(*_: object, **__: object) -> None:
        with open(tmp_path / "step_1" / "model.pt", "r+b") as file:
            file.write(b"ONE")
        os.utime(tmp_path / "step_1" / "model.pt")

    real_link, real_copy = os.link, pins.copy_bytes
    monkeypatch.setattr(os, "link", lambda *a, **k: (real_link(*a, **k), spoil()))
    monkeypatch.setattr(pins, "clone", lambda *_: False)
    monkeypatch.setattr(pins, "copy_bytes", lambda *a: (real_copy(*a), spoil()))
    with pytest.raises(PinError, match="changed while"):
        pin_save(reader=Reader(tmp_path), save=save, pin_id="p", how={"step_1/model.pt": how})
    assert list_pins(tmp_path) == ()
    assert (tmp_path / "step_1" / "model.pt").read_bytes() == b"ONE"


def test_a_vanished_file_is_not_pinned(tmp_path: Path) -> None:
    save = write(tmp_path, "step_1/model.pt", b"one")
    (tmp_path / "step_1" / "model.pt").unlink()
    with pytest.raises(PinError):
        pin_save(reader=Reader(tmp_path), save=save, pin_id="p", how={})


def test_a_link_swapped_in_is_not_followed(tmp_path: Path) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    save = write(root, "step_1/model.pt", b"one")
    secret.write_bytes(b"one")
    (root / "step_1" / "model.pt").unlink()
    (root / "step_1" / "model.pt").symlink_to(secret)
    with pytest.raises(PinError, match="link"):
        pin_save(reader=Reader(root), save=save, pin_id="p", how={})


def test_where_hard_links_are_refused_the_bytes_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = write(tmp_path, "step_1/model.pt", b"one")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "link", refuse)
    pin = pin_save(
        reader=Reader(tmp_path), save=save, pin_id="p", how={"step_1/model.pt": PinHow.LINK}
    )
    assert [pinned.how for pinned in pin.files] == [PinHow.COPY]


def test_a_pin_is_made_once_and_dropped_without_a_trace(tmp_path: Path) -> None:
    save = write(tmp_path, "step_1/model.pt", b"one")
    reader = Reader(tmp_path)
    digest = reader.sha256(save.files[0])
    how = {"step_1/model.pt": PinHow.LINK}
    first = pin_save(reader=reader, save=save, pin_id="p", how=how)
    assert pin_save(reader=reader, save=one_save(tmp_path), pin_id="p", how=how) == first
    drop_pin(reader=reader, pin_id="p")
    drop_pin(reader=reader, pin_id="p")
    assert list_pins(tmp_path) == ()
    entry = one_save(tmp_path).files[0]
    assert reader.cache.get(entry.stamp, "sha256") == digest, "hashed again for our own link"


def test_an_overwritten_pin_is_seen(tmp_path: Path) -> None:
    """A hard link to a file that is then overwritten in place: the pin is no good any more."""
    save = write(tmp_path, "step_1/model.pt", b"one")
    how = {"step_1/model.pt": PinHow.LINK}
    pin = pin_save(reader=Reader(tmp_path), save=save, pin_id="p", how=how)
    with open(tmp_path / "step_1" / "model.pt", "r+b") as file:
        file.write(b"ONE")
    os.utime(tmp_path / "step_1" / "model.pt", ns=(1, 1))
    assert pin_entries(tmp_path, pin) is None


def test_what_a_crash_left_of_a_pin_is_swept(tmp_path: Path) -> None:
    save = write(tmp_path, "step_1/model.pt", b"one")
    reader = Reader(tmp_path)
    pin_save(reader=reader, save=save, pin_id="whole", how={})
    (files_dir(tmp_path, "half") / "step_1").mkdir(parents=True)
    (pins.pins_dir(tmp_path) / "torn").mkdir()
    (pins.pins_dir(tmp_path) / "torn" / "pin.json").write_text('{"id": "to')
    assert sweep_pins(reader=reader) == ("half", "torn")
    assert [pin.id for pin in list_pins(tmp_path)] == ["whole"]


def test_room_is_kept_for_the_next_save(tmp_path: Path) -> None:
    room = disk_room(tmp_path, largest_save=100, wanted=0)
    assert room.fits
    assert room.reserve == 150
    assert not replace(room, wanted=room.free - 149).fits
    assert replace(room, wanted=room.free - 150).fits
