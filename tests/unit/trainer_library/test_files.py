"""Files of saves: proved before they are read, and removed only once newer ones are there."""

from __future__ import annotations

import errno
import os
import threading
import time
import zipfile
from pathlib import Path

import pytest
from rtj_trainer import files, telling, writing


def save(directory: Path, step: int, content: bytes = b"x" * 5000) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = files.path_of(directory, step)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", content)
    return path


def test_saves_are_ordered_by_step_and_others_are_left_alone(tmp_path: Path) -> None:
    for step in (200, 5, 30):
        save(tmp_path, step)
    for other in ("best.pt", "rtj_step_5.pt", ".rtj_step_0000000005.pt.1.tmp"):
        (tmp_path / other).touch()
    assert [step for step, _ in files.saves_in(tmp_path)] == [5, 30, 200]
    assert files.saves_in(tmp_path / "nowhere") == []


@pytest.mark.parametrize("hurt", ["cut", "flipped", "empty"])
def test_a_damaged_save_is_told(tmp_path: Path, hurt: str) -> None:
    path = save(tmp_path, 1)
    files.prove(path)
    content = bytearray(path.read_bytes())
    if hurt == "flipped":
        content[2000] ^= 1
    path.write_bytes(b"" if hurt == "empty" else content[:3000] if hurt == "cut" else content)
    with pytest.raises(files.NotWhole, match=path.name):
        files.prove(path)


def test_the_newest_stay_and_so_does_what_the_run_came_from(tmp_path: Path) -> None:
    for step in range(1, 7):
        save(tmp_path, step)
    beyond = save(tmp_path, 99)  # of another line: an older save was chosen on purpose
    spare = files.path_of(tmp_path, 2)
    files.remove_older(tmp_path, newest=6, keep=2, spare=spare)
    left = [step for step, _ in files.saves_in(tmp_path)]
    assert left == [2, 5, 6, 99]
    assert beyond.exists()


def test_whatever_bit_of_a_save_is_flipped_it_is_damaged_or_the_same(tmp_path: Path) -> None:
    path = save(tmp_path, 1, b"content")
    whole = path.read_bytes()
    proved = 0
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            files.prove(path)
        except files.NotWhole:
            continue
        proved += 1
        with zipfile.ZipFile(path) as archive:
            found = [archive.read(name) for name in archive.namelist()]
        assert found == [b"content"], f"bit {bit}"
    # Times and attributes, which no CRC covers, may differ; most bits matter.
    assert 0 < proved < 4 * len(whole)


def test_a_save_that_cannot_be_asked_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, 1)

    def stale(*_: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(files.zipfile, "ZipFile", stale)
    with pytest.raises(OSError, match="Stale file handle"):
        files.prove(path)


def sharded(directory: Path, step: int, *, is_finished: bool = True) -> Path:
    place = files.path_of(directory, step, is_sharded=True)
    place.mkdir(parents=True)
    for name in ("__0_0.distcp", ".metadata")[: 1 + is_finished]:
        (place / name).touch()
    return place


def test_a_sharded_save_that_did_not_finish_is_not_one_of_those_that_stay(tmp_path: Path) -> None:
    for step, is_finished in ((10, True), (20, False), (30, False), (40, True)):
        sharded(tmp_path, step, is_finished=is_finished)
    files.remove_older(tmp_path, newest=40, keep=3, spare=None)
    assert [step for step, _ in files.saves_in(tmp_path)] == [10, 40]


def test_a_machine_that_sees_only_its_own_shards_keeps_the_newest(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        sharded(tmp_path, step, is_finished=False)
    files.remove_older(tmp_path, newest=30, keep=2, spare=None, by_mark=False)
    assert [step for step, _ in files.saves_in(tmp_path)] == [20, 30]


def test_a_sharded_save_that_is_written_over_is_finished_no_longer(tmp_path: Path) -> None:
    place = sharded(tmp_path, 10)
    files.unmark(place)
    files.unmark(tmp_path / "nowhere")
    assert not files.is_finished(place)


def test_only_what_nobody_writes_is_removed_of_what_was_begun(tmp_path: Path) -> None:
    host, now = files._host(), time.time()
    ages = {
        f".rtj_step_0000000001.pt.{host}.999999999.0123abcd.tmp": 100,  # died
        f".rtj_step_0000000002.pt.{host}.999999999.0123abcd.tmp": 1,  # perhaps a host's namesake
        f".rtj_step_0000000003.pt.{host}.1.0123abcd.tmp": 100,  # lives
        ".rtj_step_0000000004.pt.other.999999999.0123abcd.tmp": 100,
        ".rtj_step_0000000005.pt.other.999999999.0123abcd.tmp": 4000,
        ".rtj_step_0000000006.pt.7.tmp": 4000,
    }
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age, now - age))
    files.remove_begun(tmp_path)
    assert [p.name.split(".")[1] for p in sorted(tmp_path.iterdir())] == [
        "rtj_step_0000000002",
        "rtj_step_0000000003",
        "rtj_step_0000000004",
    ]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_directory_that_cannot_be_synced_costs_no_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked = []

    def refuse(number: int) -> None:
        asked.append(number)
        raise OSError(code, "no")

    monkeypatch.setattr(files.os, "fsync", refuse)
    files.sync_directory(tmp_path)
    assert len(asked) == 1, "it was tried, and the refusal taken"


def test_a_directory_that_loses_what_is_written_costs_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(OSError, match="Input/output"):
        files.sync_directory(tmp_path)


def test_a_failure_that_is_no_exception_is_a_failed_save_too() -> None:
    """The error of PyTorch's DCP derives from BaseException."""

    class CheckpointException(BaseException):
        pass

    def task() -> int:
        raise CheckpointException("rank 1: no space left")

    writer = writing.Writer()
    writer.begin("step 1", task)
    writer.wait()
    assert writer.is_failed
    assert writer.costs.failed == 1


def test_the_marker_of_a_sharded_save_goes_first(tmp_path: Path) -> None:
    for step in (1, 2):
        place = files.path_of(tmp_path, step, is_sharded=True)
        place.mkdir(parents=True)
        for name in (".metadata", "__0_0.distcp"):
            (place / name).touch()
    files.remove_older(tmp_path, newest=2, keep=1, spare=None)
    assert [step for step, _ in files.saves_in(tmp_path)] == [2]


def test_a_second_save_waits_for_the_first_and_a_failure_is_counted() -> None:
    writer, may_end, order = writing.Writer(), threading.Event(), []

    def first() -> int:
        may_end.wait(30)
        order.append("first")
        return 7

    def second() -> int:
        order.append("second")
        raise OSError("no space left")

    writer.begin("step 1", first)
    assert not writer.idle
    threading.Timer(0.1, may_end.set).start()
    writer.begin("step 2", second)
    writer.wait()
    assert order == ["first", "second"]
    assert (writer.costs.saves, writer.costs.failed, writer.costs.written_bytes) == (1, 1, 7)
    assert writer.costs.last_error == "OSError: no space left"
    assert writer.is_failed


def test_a_record_that_a_kill_cut_off_costs_only_itself(tmp_path: Path) -> None:
    told = telling.Told(tmp_path, rank=0, progress=None)
    told.tell({"step": 1, "loss": 2.0})
    record = tmp_path / telling.HIDDEN / "steps-0.jsonl"
    with open(record, "a") as file:
        file.write('{"step": 2, "lo')
    again = telling.Told(tmp_path, rank=0, progress=None)
    again.tell({"step": 2, "loss": 1.0})
    assert again.before() == {1: {"step": 1, "loss": 2.0}, 2: {"step": 2, "loss": 1.0}}
    assert record.read_text().count("\n") == 3


def test_a_place_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    told = telling.Told(tmp_path / "file", rank=0, progress=None)
    for step in range(3):
        told.tell({"step": step})
    assert caplog.text.count("cannot be written") == 1
