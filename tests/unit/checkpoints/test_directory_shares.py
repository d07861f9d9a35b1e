"""What a rank has of a save: a share until it is known to be all; and pins follow a touch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.directories import Place
from rtj_sidecar.arrivals import follow_touch
from rtj_sidecar.checkpoints.types import Expectations
from rtj_sidecar.runs.records import FileRecord, ShipRecord

TWO = Expectations(world_size=2, whole=False)


def ship(*ranks: int, root: str, layout: str = "torch") -> ShipRecord:
    return ShipRecord(
        fence=1,
        n=1,
        name="f1-n1-s5",
        root_key=root,
        layout=layout,
        step=5,
        expected=list(ranks),
        contested=[],
        world_size=2,
        named_at=0,
    )


@pytest.mark.parametrize(
    ("file", "expect", "writers", "alone"),
    [
        ("step_5.pt", TWO, (0,), True),  # rank 0 alone saves, as most scripts do
        ("step_5.pt", TWO, (0, 1), False),
        ("step_5/shard_rank0.pt", TWO, (0, 1), False),
        # Named before rank 1 was heard: its own names say that a file is missing.
        ("step_5/shard_rank0.pt", TWO, (0,), False),
        ("step_5/shard_rank0.pt", Expectations(world_size=1), (0,), True),
    ],
)
def test_alone(
    tmp_path: Path, file: str, expect: Expectations, writers: tuple[int, ...], alone: bool
) -> None:
    place = Place(tmp_path / "out", {"expect": expect})
    place.save(file, step=5)
    (local,) = place.pin_all()
    root = local.record.facts.root_key
    assert place.directory.is_alone(local, ship(*writers, root=root), rank=0) is alone


def test_a_share_is_whole_only_by_the_word_of_the_ship_or_the_manifest(tmp_path: Path) -> None:
    place = Place(tmp_path / "out", {"expect": TWO})
    path = place.save("step_5/shard_rank0.pt", step=5)
    (local,) = place.pin_all(name=lambda _: "f1-n1-s5")
    directory = place.directory
    assert not directory.has_whole("f1-n1-s5")
    local = directory.update(local, durable=True)
    assert not directory.has_whole("f1-n1-s5"), "durable is not whole here"

    def record(name: str) -> FileRecord:
        return FileRecord(
            path=f"step_5/{name}", key="", size=path.stat().st_size, sha256="", crc64nvme="", mode=0
        )

    own, other = record("shard_rank0.pt"), record("shard_rank1.pt")
    directory.update(local, wanted=[own, other])
    assert not directory.has_whole("f1-n1-s5")
    directory.update(local, wanted=[own])
    assert directory.has_whole("f1-n1-s5")


def test_a_pin_that_is_a_link_follows_the_touch_of_a_restore(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    touched, other = place.save("step_5.pt", step=5), place.save("step_10.pt", step=10)
    place.pin_all(name=lambda found: f"s{found.step}")
    for path in (touched, other):
        os.utime(path, ns=(10**18, 10**18))
    five, ten = place.directory.named("s5")[0], place.directory.named("s10")[0]
    assert not place.directory.is_intact(five)
    follow_touch(place.directory, ["step_5.pt"])
    assert place.directory.is_intact(place.directory.named("s5")[0])
    assert not place.directory.is_intact(ten), "nobody of ours touched that one"
    # A sidecar that comes after knows it, too.
    reopened = place.open()
    reopened.load()
    assert [save.record.name for save in reopened.saves] == ["s5"]


def test_a_file_that_was_replaced_is_not_followed(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    path = place.save("step_5.pt", step=5)
    (local,) = place.pin_all()
    pinned = place.directory.sources(local)["step_5.pt"]
    os.utime(pinned, ns=(10**18, 10**18))
    path.unlink()
    place.save("step_5.pt", step=5)
    follow_touch(place.directory, ["step_5.pt"])
    assert not place.directory.is_intact(place.directory.saves[0])
