"""The ledger survives torn lines and tells this run's own saves from everything else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from rtj_sidecar.checkpoints.ledger import (
    append_ledger,
    entry_for,
    ledger_path,
    read_ledger,
)
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave

FILE = FileEntry("ckpt_1.pt", 10, 0o644, 5, 5, 1, 1)
BEST = FileEntry("best.pt", 10, 0o644, 6, 6, 2, 1)
SAVE = FoundSave("ckpt_1.pt", "torch", (FILE,), aliases=(BEST,), step=1)


def test_nothing_is_an_empty_ledger(tmp_path: Path) -> None:
    assert read_ledger(tmp_path).entries == ()


def test_what_is_appended_is_found_by_run_and_generation(tmp_path: Path) -> None:
    first = entry_for(SAVE, run_id="ns/a", fence=3, n=None, time=1.0)
    named = entry_for(SAVE, run_id="ns/a", fence=3, n=7, time=2.0)
    append_ledger(tmp_path, [first])
    append_ledger(tmp_path, [named])
    ledger = read_ledger(tmp_path)
    assert ledger.entries == (first, named)
    assert ledger.find(SAVE, run_id="ns/a") == named
    assert ledger.find(SAVE, run_id="ns/b") is None
    rewritten = replace(SAVE, files=(replace(FILE, mtime_ns=6),))
    assert ledger.find(rewritten, run_id="ns/a") is None


def test_an_alias_left_alone_is_no_new_save(tmp_path: Path) -> None:
    append_ledger(tmp_path, [entry_for(SAVE, run_id="r", fence=1, n=0, time=1.0)])
    ledger = read_ledger(tmp_path)
    alone = FoundSave("best.pt", "torch", (BEST,), step=1)
    assert ledger.holds_old_news(alone, run_id="r")
    assert not ledger.holds_old_news(alone, run_id="other")
    newer = FoundSave("best.pt", "torch", (replace(BEST, mtime_ns=9),), step=2)
    assert not ledger.holds_old_news(newer, run_id="r")


def test_what_a_rotation_left_is_no_new_save(tmp_path: Path) -> None:
    """Also after a restart of the sidecar, which has forgotten what was there before."""
    other = replace(FILE, path="ckpt_1.opt", inode=3)
    whole = replace(SAVE, files=(FILE, other))
    append_ledger(tmp_path, [entry_for(whole, run_id="r", fence=1, n=0, time=1.0)])
    ledger = read_ledger(tmp_path)
    assert ledger.holds_old_news(SAVE, run_id="r")
    assert not ledger.holds_old_news(whole, run_id="r")
    newer = replace(SAVE, files=(replace(FILE, mtime_ns=99),))
    assert not ledger.holds_old_news(newer, run_id="r")


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_torn_last_line_costs_only_itself(tmp_path: Path, cut: int) -> None:
    first = entry_for(SAVE, run_id="r", fence=1, n=0, time=1.0)
    append_ledger(tmp_path, [first, replace(first, n=1)])
    path = ledger_path(tmp_path)
    os.truncate(path, path.stat().st_size - cut - 1)
    assert read_ledger(tmp_path).entries == (first,)
    append_ledger(tmp_path, [replace(first, n=2)])
    assert read_ledger(tmp_path).entries == (first, replace(first, n=2))


def test_lines_of_a_newer_version_and_garbage_are_skipped(tmp_path: Path) -> None:
    first = entry_for(SAVE, run_id="r", fence=1, n=0, time=1.0)
    append_ledger(tmp_path, [first])
    with open(ledger_path(tmp_path), "ab") as file:
        file.write(b'{"kind": "other"}\n\x00\x00\x00\n[1]\n')
    append_ledger(tmp_path, [])
    assert read_ledger(tmp_path).entries == (first,)


def test_a_ledger_that_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    ledger_path(tmp_path).mkdir(parents=True)
    with pytest.raises(OSError):
        read_ledger(tmp_path)
