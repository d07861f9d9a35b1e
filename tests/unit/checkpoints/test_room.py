"""The disk budget: who gives way, in which order, and what never does."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.directories import GONE, Place
from rtj_sidecar import room
from rtj_sidecar.checkpoints.budget import Usage, fullest
from rtj_sidecar.checkpoints.pins import DiskRoom
from rtj_sidecar.room import PodVolume, ease

FLOATS = 1 << 13  # about 64 KiB a save
SAVE = 2 * 4 * FLOATS
POD = PodVolume(limit=10 * SAVE)


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own disk, however full, says nothing here."""
    monkeypatch.setattr(room, "_disk_usage", lambda _: Usage(0, 1 << 60))


def test_fullest() -> None:
    assert fullest([Usage(50, 100), Usage(8, 10), Usage(1, 3)]) == Usage(8, 10)
    assert Usage(8, 10).above(0.7) == 1
    assert Usage(7, 10).above(0.7) == 0


def filled(place: Place, steps: range, *, durable: bool = True) -> None:
    """Saves as the holder makes them durable one by one, with the pins of the newest two."""
    for step in steps:
        place.save(f"step_{step}.pt", step=step, floats=FLOATS)
        number = step
        for local in place.pin_all(name=lambda _, n=number: f"f1-n{n}-s{n}", fence=1, n=number):
            if durable:
                place.directory.ledger.note_durable(place.directory.update(local, durable=True))
        for old in place.directory.saves[:-2]:
            place.directory.drop(old)


def eased(place: Place, volume: PodVolume | None = POD) -> room.Eased:
    look = place.directory.look(writers=GONE)
    return ease(place.directory, look.snapshot, pod_volume=volume)


def left(place: Place) -> list[int]:
    return sorted(int(p.stem.split("_")[1]) for p in place.path.glob("step_*.pt"))


def test_on_a_pod_volume_the_oldest_durable_saves_go(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    filled(place, range(1, 7))
    assert eased(place).removed == ()
    filled(place, range(7, 10))
    assert eased(place).removed == ("step_1.pt", "step_2.pt", "step_3.pt")
    assert left(place) == [4, 5, 6, 7, 8, 9]
    assert eased(place).removed == ()
    assert not (place.path / ".rtj/trash").exists()


def test_the_newest_two_stay_however_full_it_is(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    filled(place, range(1, 5))
    eased(place, PodVolume(limit=SAVE))
    assert left(place) == [3, 4]


def test_on_a_persons_volume_only_what_is_ours_goes(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    filled(place, range(1, 10))
    assert eased(place, None).removed == ()
    assert len(left(place)) == 9


def test_what_is_not_durable_stays_until_a_newer_one_is(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    filled(place, range(1, 10), durable=False)
    assert eased(place).removed == ()
    filled(place, range(10, 11))
    assert eased(place).removed[:2] == ("step_1.pt", "step_2.pt")


def test_so_many_as_were_asked_for_stay_however_empty_it_is(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    filled(place, range(1, 7))
    asked = PodVolume(limit=100 * SAVE, keep=3)
    assert eased(place, asked).removed == ("step_1.pt", "step_2.pt", "step_3.pt")
    assert left(place) == [4, 5, 6]
    filled(place, range(7, 10), durable=False)
    assert eased(place, asked).removed == ("step_4.pt", "step_5.pt", "step_6.pt")
    filled(place, range(10, 11))
    assert eased(place, asked).removed == ("step_7.pt",)
    assert left(place) == [8, 9, 10]
    eased(place, PodVolume(limit=SAVE, keep=3))
    assert left(place) == [9, 10], "too full: two stay"


def test_a_persons_file_and_one_that_is_named_stay(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    place.save("step_1.pt", step=1, floats=FLOATS)
    place.directory.load(is_new=True)
    filled(place, range(2, 10))
    (place.path / "best.link").symlink_to("step_2.pt")
    (place.path / "best.pt").symlink_to("step_3.pt")
    assert eased(place).removed[0] == "step_4.pt"
    assert {1, 2, 3} <= set(left(place))


def test_quarantine_and_mirrors_go_first(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    filled(place, range(1, 10))
    aside = place.path / ".rtj/quarantine/1/step_90.pt"
    aside.parent.mkdir(parents=True)
    aside.write_bytes(b"x" * 9 * SAVE)
    eased(place, PodVolume(limit=25 * SAVE))
    assert not aside.exists()
    assert len(left(place)) == 9


def test_short_room_is_told_and_pins_give_way_newest_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path / "out")
    filled(place, range(1, 4))
    full = DiskRoom(free=SAVE, reserve=2 * SAVE, wanted=0)
    monkeypatch.setattr(room, "disk_room", lambda *_, **__: full)
    found = eased(place, None)
    assert [save.record.facts.step for save in place.directory.saves] == [3]
    assert found.short == 0
    found = eased(place, None)
    assert (found.short, found.free) == (SAVE, SAVE)
    assert left(place) == [1, 2, 3]
