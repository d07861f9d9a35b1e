"""Saves that come and go faster than they settle: caught where they prove themselves, else told."""

from __future__ import annotations

import os
from pathlib import Path

from kit.directories import Place
from rtj_sidecar.checkpoints.quiescence import Writers

CLOSED = Writers(open_paths=frozenset())


def look(place: Place, writers: Writers = CLOSED) -> list[int | None]:
    """Steps that vanished by this look."""
    return [save.step for save in place.directory.look(writers=writers).vanished]


def test_an_overwritten_and_a_deleted_save_are_missed(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    place.save("last.pt", step=5)
    assert look(place) == []
    place.save("last.pt", step=10)
    assert look(place) == [5]
    (place.path / "last.pt").unlink()
    assert look(place) == [10]
    assert place.directory.sight.in_hurry


def test_what_was_pinned_renamed_or_saved_again_is_not_missed(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    place.save("step_5.pt", step=5)
    place.pin_all()
    place.save("step_10.pt", step=10)
    place.save("step_15.pt", step=15)
    assert look(place) == []
    (place.path / "step_5.pt").unlink()  # pinned
    os.rename(place.path / "step_10.pt", place.path / "step_10.best.pt")
    place.save("step_15.pt", step=15, state=8)  # saved twice at the same step
    assert look(place) == []
    assert not place.directory.sight.in_hurry


def test_a_growing_file_was_never_whole(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    whole = place.save("last.pt", step=5).read_bytes()
    for part in (0.3, 0.6, 0.9):
        (place.path / "last.pt").write_bytes(whole[: int(part * len(whole))])
        assert look(place) == []
    (place.path / "last.pt").unlink()
    assert look(place) == []


def test_in_a_hurry_a_closed_file_that_proves_itself_does_not_wait(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    place.directory.sight.in_hurry = True
    place.save("last.pt", step=5)
    place.save("step_6/a.pt", step=6)
    place.save("step_6/b.pt", step=6)
    place.judged(CLOSED)

    def candidates(writers: Writers) -> list[str]:
        return [save.root_key for save, verdict in place.judged(writers) if verdict.candidate]

    observed = place.directory.sight._observations
    rested = {path: (state, since - 0.2) for path, (state, since) in observed.since.items()}
    place.directory.sight._observations = type(observed)(rested)
    assert candidates(Writers(open_paths=frozenset({"last.pt"}))) == []
    assert candidates(Writers()) == [], "who has it open is not known"
    assert candidates(CLOSED) == ["last.pt"], "a set of files waits: more may come"
