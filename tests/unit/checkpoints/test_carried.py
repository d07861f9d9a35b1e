"""`best.pt` of an earlier step comes back with the newest save, from the save that holds it."""

from __future__ import annotations

from pathlib import Path

from kit.directories import Place


def told(place: Place) -> list[tuple[str, object, object]]:
    """(path, n, step) that the newest pin carries."""
    facts = place.directory.saves[-1].record.facts.facts
    return [(t["path"], t["n"], t["step"]) for t in facts["carried"]]


def durable(place: Place, n: int) -> None:
    for local in place.pin_all(name=lambda found: f"f1-n{n}-s{found.step}", fence=1, n=n):
        place.directory.ledger.note_durable(place.directory.update(local, durable=True))


def test_an_older_durable_best_is_carried(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    place.save("last.pt", step=5)
    place.save("best.pt", step=5)
    durable(place, 1)
    assert told(place) == [], "it is part of that very save"
    place.save("last.pt", step=10)
    durable(place, 2)
    assert told(place) == [("best.pt", 1, 5)]
    # A sidecar that knows only the ledger, and a rotation that drops the old pins.
    place.open()
    place.directory.load()
    place.save("last.pt", step=15)
    durable(place, 3)
    assert told(place) == [("best.pt", 1, 5)]
    place.save("best.pt", step=20)
    place.save("last.pt", step=20)
    durable(place, 4)
    assert told(place) == []


def test_what_is_not_durable_or_a_persons_own_is_not(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    place.save("pretrained.pt", step=1)
    place.directory.load(is_new=True)
    place.save("last.pt", step=5)
    place.save("best.pt", step=5)
    place.pin_all()
    place.directory.drop(place.directory.saves[0])  # it never became durable
    place.save("last.pt", step=10)
    place.pin_all()
    assert told(place) == []
    newest = place.directory.saves[-1]
    assert {f.path for f in newest.pin.files} == {"last.pt", "best.pt"}, "it goes with the next"
    assert newest.record.facts.facts["companions"] == ["best.pt"]


def test_a_restored_one_is_known_again(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    item = {"path": "best.pt", "fence": 1, "n": 1, "step": 5}
    assert not place.directory.ledger.has_carried(item)
    place.save("best.pt", step=5)
    assert not place.directory.ledger.has_carried(item), "nobody said what it is"
    place.directory.ledger.note_carried(item)
    assert place.directory.ledger.has_carried(item)
    place.save("last.pt", step=30)
    durable(place, 2)
    assert told(place) == [("best.pt", 1, 5)]
    assert [save.record.facts.root_key for save in place.directory.saves] == ["last.pt"]
