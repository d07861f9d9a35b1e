"""The deeper look, as the sidecar takes it: what it finds unfit, and what is never held up."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from kit import checkpoint_fixtures
from kit.directories import Place
from rtj_sidecar.checkpoints.deeper import Depth, unfit_of
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.types import FoundSave, Status, Verdict

SCRIPT = Path(checkpoint_fixtures.__file__).with_name("make_numbers.py")
FULL = Depth(numbers=True)


@pytest.fixture(scope="module")
def made() -> Path:
    return checkpoint_fixtures.made_by(SCRIPT, name="numbers")


def place(tmp_path: Path, **options: object) -> Place:
    return Place(tmp_path / "checkpoints", {"depth": FULL, **options})


def appear(there: Place, source: Path) -> None:
    """A trainer has written it: a file, or a directory of DCP whose marker is the youngest."""
    target = there.path / source.name
    if source.is_file():
        shutil.copyfile(source, target)
        return
    shutil.copytree(source, target)
    os.utime(target / ".metadata")


def newest(there: Place) -> tuple[FoundSave, Verdict]:
    return there.judged()[-1]


def test_it_compares_with_the_newest_fit_save_before(made: Path, tmp_path: Path) -> None:
    there = place(tmp_path)
    for step, is_fit in ((1, True), (2, False), (3, False), (4, True)):
        appear(there, made / "f32" / f"ckpt_{step}.pt")
        save, verdict = newest(there)
        assert save.step == step
        assert verdict.status is Status.VERIFIED  # its bytes are what was written
        assert verdict.candidate  # so it is shipped in any case
        assert (unfit_of(verdict.facts) is None) == is_fit, verdict.facts
    (there.path / "ckpt_1.pt").unlink()  # rotated away: what it held is remembered
    assert [unfit_of(v.facts) is None for _, v in there.judged()] == [False, False, True]
    _, verdict = there.judged()[0]
    assert unfit_of(verdict.facts) == (
        "CheckpointNotFinite",
        "ckpt_2.pt: NaN in model.2.weight, finite in the save before",
    )


@pytest.mark.parametrize("is_rotated", [False, True])
def test_a_new_sidecar_in_the_midst_of_nan_compares_with_the_last_fit_save(
    made: Path, tmp_path: Path, is_rotated: bool
) -> None:
    """However little its trainer keeps, and where only the pin of an unfit save is left."""
    there = place(tmp_path)
    for step in (1, 2):
        appear(there, made / "f32" / f"ckpt_{step}.pt")
        there.pin_all()
    (there.path / "ckpt_1.pt").unlink()
    if is_rotated:
        there.directory.drop(there.directory.saves[0])
    there.open().load()
    assert unfit_of(newest(there)[1].facts) is not None, "said before, and still so"
    (there.path / "ckpt_2.pt").unlink()
    there.open().load()
    shutil.copyfile(made / "f32" / "ckpt_2.pt", there.path / "ckpt_3.pt")  # the same NaN, later
    assert unfit_of(newest(there)[1].facts) is not None
    there.pin_all()
    appear(there, made / "f32" / "ckpt_4.pt")
    assert unfit_of(newest(there)[1].facts) is None


def test_of_what_lies_there_at_first_only_the_newest_two_are_read(
    made: Path, tmp_path: Path
) -> None:
    there = place(tmp_path)
    for step in (1, 3, 4):
        appear(there, made / "f32" / f"ckpt_{step}.pt")
    there.judged()
    facts = [verdict.facts for _, verdict in there.judged()]
    assert ["numbers" in each for each in facts] == [False, True, True]


def test_a_save_that_is_still_being_written_at_the_first_look_is_read_later(
    made: Path, tmp_path: Path
) -> None:
    there = place(tmp_path)
    appear(there, made / "f32" / "ckpt_1.pt")
    writing = Writers(open_paths=frozenset({"ckpt_1.pt"}), gone=False)
    assert [verdict.candidate for _, verdict in there.judged(writing)] == [False]
    assert "numbers" in newest(there)[1].facts
    appear(there, made / "f32" / "ckpt_2.pt")
    assert unfit_of(newest(there)[1].facts) is not None


def test_level_container_reads_no_numbers(made: Path, tmp_path: Path) -> None:
    there = place(tmp_path, depth=Depth())
    for step in (1, 2):
        appear(there, made / "f32" / f"ckpt_{step}.pt")
        _, verdict = newest(there)
    assert "numbers" not in verdict.facts
    assert unfit_of(verdict.facts) is None


def test_dcp_and_required_keys_in_one_look(made: Path, tmp_path: Path) -> None:
    there = place(tmp_path, depth=Depth(numbers=True, required=("optim", "scheduler")))
    for step in (1, 2):
        appear(there, made / "dcp" / f"step_{step}")
        _, verdict = newest(there)
        assert verdict.facts["required"] == {
            "held": ["optim"],
            "missing": ["scheduler"],
            "where": [f"step_{step}/.metadata"],
            "unread": [],
        }
    assert unfit_of(verdict.facts) is not None
