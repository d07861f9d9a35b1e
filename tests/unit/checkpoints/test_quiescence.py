"""Quiet means unchanged for a while and open for writing in no process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kit.checkpoint_looks import judged
from rtj_sidecar.checkpoints.quiescence import (
    Observations,
    Writers,
    is_closed,
    observe,
    quiet_gate,
)
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave, Reason, Snapshot, Status

FILE = FileEntry("step_1/a.pt", 10, 0o644, 5, 5, 1, 1)
SAVE = FoundSave("step_1", "torch", (FILE,))


def seen(entry: FileEntry) -> Snapshot:
    return Snapshot((entry,), (), (), (), (), ())


def passed(observations: Observations, now: float, writers: Writers) -> bool | None:
    return quiet_gate(
        save=SAVE, observations=observations, now=now, settle_seconds=2.0, writers=writers
    ).passed


def test_it_must_stay_unchanged_for_the_whole_time() -> None:
    first = observe(before=Observations(), snapshot=seen(FILE), now=100.0)
    assert passed(first, 101.9, Writers()) is False
    assert passed(first, 102.0, Writers()) is True
    grown = observe(before=first, snapshot=seen(replace(FILE, size=11)), now=101.0)
    back = observe(before=grown, snapshot=seen(FILE), now=101.5)
    assert passed(back, 102.0, Writers()) is False
    assert passed(back, 103.5, Writers()) is True


def test_a_pin_or_a_rotation_of_a_hard_link_is_no_change() -> None:
    first = observe(before=Observations(), snapshot=seen(FILE), now=100.0)
    linked = observe(before=first, snapshot=seen(replace(FILE, ctime_ns=9)), now=102.0)
    assert passed(linked, 102.0, Writers()) is True


def test_an_open_writer_and_a_file_never_seen_are_not_quiet() -> None:
    first = observe(before=Observations(), snapshot=seen(FILE), now=0.0)
    open_file = Writers(open_paths=frozenset({"step_1/a.pt"}))
    open_beside = Writers(open_paths=frozenset({"step_1/new.pt"}))
    elsewhere = Writers(open_paths=frozenset({"step_2/a.pt", "step_10/a.pt"}))
    assert passed(first, 100.0, open_file) is False
    assert passed(first, 100.0, open_beside) is False
    assert passed(first, 100.0, elsewhere) is True
    assert passed(Observations(), 100.0, Writers()) is False


def test_when_every_writer_has_ended_nothing_is_waited_for() -> None:
    assert passed(Observations(), 0.0, Writers(gone=True)) is True


def test_closed_is_known_only_from_the_list_of_open_files() -> None:
    assert not is_closed(save=SAVE, writers=Writers())
    assert is_closed(save=SAVE, writers=Writers(open_paths=frozenset()))
    assert not is_closed(save=SAVE, writers=Writers(open_paths=frozenset({"step_1/a.pt"})))
    assert is_closed(save=SAVE, writers=Writers(gone=True))


def test_what_still_changes_is_writing_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "ckpt_1.pt").write_bytes(b"half")
    verdict = judged(tmp_path, writers=Writers())["ckpt_1.pt"][1]
    assert (verdict.status, verdict.reason) == (Status.WRITING, Reason.NOT_QUIET)
    open_now = Writers(open_paths=frozenset({"ckpt_1.pt"}))
    verdict = judged(tmp_path, writers=open_now)["ckpt_1.pt"][1]
    assert (verdict.status, verdict.reason) == (Status.WRITING, Reason.OPEN_WRITER)
