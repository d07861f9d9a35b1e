"""What a person had put into the directory is theirs: it stays, or is moved and never deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.directories import Place
from rtj_sidecar.checkpoints.quarantine import free_quarantine
from rtj_sidecar.restoring import Restored, Target, restore, set_all_aside
from rtj_sidecar.runs.records import FileRecord


def weights(path: Path) -> Path:
    """safetensors: weights alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"abcd")
    return path


def restored(place: Place, step: int, *, attempt: int = 2) -> Restored:
    """Restores the pinned save of that step."""
    (name,) = {s.record.name for s in place.directory.saves if s.record.facts.step == step}
    assert name is not None
    lead = place.directory.named(name)[0]
    files = [
        FileRecord(path=path, key="", size=size, sha256=digest, crc64nvme="", mode=mode)
        for path, (size, digest, mode) in place.directory.hashes(name).items()
    ]
    target = Target(name, lead.record.facts, tuple(files), durable=True)

    def fetch(files: object, incoming: Path) -> int:
        raise AssertionError(f"nothing is to be fetched: {files}")

    return restore(place.directory, target, attempt=attempt, owner=None, fetch=fetch)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Pretrained weights with a high number, data, another run's old and newer saves."""
    place = Place(tmp_path / "out")
    weights(place.path / "step_900000" / "model.safetensors")
    (place.path / "data").mkdir()
    (place.path / "data" / "tokens_7.pt").write_bytes(b"not a zip")
    place.save("old_step_1.pt", step=1)
    place.save("other_step_70.pt", step=70)
    place.directory.load(is_new=True)
    return place


def test_only_what_could_be_taken_for_the_newest_save_is_moved(place: Place) -> None:
    place.save("step_10.pt", step=10)
    place.save("step_20.pt", step=20)
    place.pin_all(name=lambda found: f"s{found.step}")
    done = restored(place, 10)
    left = {p.relative_to(place.path).as_posix() for p in place.path.rglob("*") if p.is_file()}
    assert {
        "step_900000/model.safetensors",
        "data/tokens_7.pt",
        "old_step_1.pt",
        "step_10.pt",
    } <= left
    assert "step_20.pt" not in left
    assert "other_step_70.pt" not in left
    assert done.kept == ("other_step_70.pt",)
    assert ".rtj/set-aside/2/other_step_70.pt" in left
    assert ".rtj/quarantine/2/step_20.pt" in left
    free_quarantine(place.path, wanted=1 << 60)
    assert (place.path / ".rtj/set-aside/2/other_step_70.pt").exists(), "nobody deletes it"


def test_a_start_from_nothing_leaves_weights_and_data(place: Place) -> None:
    done = set_all_aside(place.directory, attempt=1)
    assert set(done.kept) == {"old_step_1.pt", "other_step_70.pt"}
    assert (place.path / "step_900000/model.safetensors").exists()
    assert (place.path / "data/tokens_7.pt").exists()


def test_what_the_trainer_wrote_over_is_the_runs_own(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    path = weights(place.path / "step_5" / "model.safetensors")
    place.directory.load(is_new=True)
    path.unlink()
    weights(path)
    # Another sidecar, in the same pod or in a new one, reads what the first one wrote.
    place.open()
    place.directory.load(is_new=True)
    done = set_all_aside(place.directory, attempt=1)
    assert (done.quarantined, done.kept) == (("step_5",), ())


def test_a_directory_with_a_ledger_holds_nothing_foreign(tmp_path: Path) -> None:
    """An older release looked after it, so what it does not know is what a trainer left torn."""
    place = Place(tmp_path / "out")
    place.save("step_5.pt", step=5)
    place.pin_all()
    place.save("step_10.pt", step=10).write_bytes(b"torn")
    place.open()
    place.directory.load(is_new=True)
    assert place.directory.ledger.foreign == frozenset()


def test_a_trainer_that_runs_makes_nothing_foreign(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    place.save("step_5.pt", step=5)
    place.directory.load(is_new=False)
    assert place.directory.ledger.foreign == frozenset()
    assert not (place.path / ".rtj/foreign").exists()


def test_a_save_of_a_trainer_that_began_elsewhere_is_set_aside(tmp_path: Path) -> None:
    """It is older than the chosen one, so it would stay: by its maker it may not."""
    place = Place(tmp_path / "out")
    place.save("step_10.pt", step=10)
    place.save("step_20.pt", step=20)
    place.pin_all(name=lambda found: f"s{found.step}", durable=True)
    place.save("step_5.pt", step=5, state=99)
    (ignored,) = place.pin_all(attempt=2)
    place.directory.ledger.disown(ignored)
    place.directory.drop(ignored)
    done = restored(place, 20, attempt=3)
    assert done.quarantined == ("step_5.pt",)
    assert (place.path / "step_10.pt").exists()


def test_what_is_foreign_is_no_news_of_the_run(place: Place) -> None:
    place.save("step_10.pt", step=10)
    assert [save.record.facts.root_key for save in place.pin_all()] == ["step_10.pt"]


def test_what_another_run_of_this_project_left_is_foreign_and_its_pins_stay(
    tmp_path: Path,
) -> None:
    theirs = Place(tmp_path / "out", {"run_id": "ns/other"})
    theirs.directory.load(is_new=True)
    theirs.save("step_70.pt", step=70)
    (pinned,) = theirs.pin_all()
    ours = Place(tmp_path / "out")
    ours.directory.load(is_new=True)
    assert ours.directory.saves == []
    ((found, _),) = ours.judged()
    assert ours.directory.ledger.is_of_another_run(found)
    assert not ours.directory.ledger.is_news(found)
    done = set_all_aside(ours.directory, attempt=1)
    assert done.kept == ("step_70.pt",)
    free_quarantine(ours.path, wanted=1 << 60)
    assert (ours.path / ".rtj/set-aside/1/step_70.pt").exists(), "nobody deletes it"
    assert theirs.directory.is_intact(pinned), "the other run may be about to ship it"
    ours.save("step_5.pt", step=5)
    ((mine, _),) = [(f, v) for f, v in ours.judged() if f.step == 5]
    assert not ours.directory.ledger.is_of_another_run(mine)
