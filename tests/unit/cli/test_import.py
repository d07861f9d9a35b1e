"""`rtj import`: a run out of another's checkpoints, without a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.foreign import playbook, torch_bytes, torn, write_files
from rtj_cli.targets import run_in
from rtj_sidecar.runs.imports import importing, places
from rtj_sidecar.runs.lineage import End, lineage
from rtj_sidecar.runs.records import Outcome
from rtj_sidecar.stores.open import open_store

Rtj = Callable[..., Any]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SETTLE_S", 0.0)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    directory = tmp_path / "old"
    write_files(
        directory,
        {
            "ckpt_10.pt": torch_bytes(step=10),
            "ckpt_20.pt": torch_bytes(step=20),
            "ckpt_30.pt": torn(torch_bytes(step=30)),
            "args.json": b"{}",
        },
    )
    return directory


def to(tmp_path: Path) -> list[str]:
    return ["--store", (tmp_path / "store").as_uri(), "--run-id", "team/gpt"]


def history_of(tmp_path: Path) -> Any:
    return run_in(open_store((tmp_path / "store").as_uri()), "team/gpt").history()


def test_the_newest_whole_save_becomes_a_run_that_is_free(
    rtj: Rtj, old: Path, tmp_path: Path
) -> None:
    done = rtj("import", old, *to(tmp_path), "-o", "json")
    told = json.loads(done.out)
    assert [save["step"] for save in told["imported"]] == [20]
    assert [each["name"] for each in told["refused"]] == ["ckpt_30.pt"]
    assert "refused ckpt_30.pt: Torn" in done.words
    history = history_of(tmp_path)
    assert [str(save) for save in lineage(history).saves] == ["f1-n1"]
    assert history.fences[-1].outcome is Outcome.RELEASED
    listed = json.loads(rtj("checkpoints", "list", to(tmp_path)[1], "-o", "json").out)
    assert [(row["name"], row["state"], row["current"]) for row in listed] == [
        ("f1-n1-s20", "valid", True)
    ]


def test_all_of_them_become_the_runs_line_in_order(rtj: Rtj, old: Path, tmp_path: Path) -> None:
    rtj("import", old, *to(tmp_path), "--all")
    history = history_of(tmp_path)
    chain = lineage(history)
    assert [history.manifests[save].step for save in chain.saves] == [20, 10]
    assert chain.end is End.SCRATCH
    again = rtj("import", old, *to(tmp_path), "--all", "-o", "json")
    assert len(json.loads(again.out)["imported"]) == 2
    assert len(history_of(tmp_path).manifests) == 2, "done again, nothing is copied twice"


def test_what_was_mended_since_has_no_place_between_newer_ones(
    rtj: Rtj, old: Path, tmp_path: Path
) -> None:
    good = (old / "ckpt_10.pt").read_bytes()
    (old / "ckpt_10.pt").write_bytes(torn(good))
    rtj("import", old, *to(tmp_path), "--all")
    (old / "ckpt_10.pt").write_bytes(good)
    done = rtj("import", old, *to(tmp_path), "--all")
    assert "ckpt_10.pt: newer ones were imported before it" in done.words
    history = history_of(tmp_path)
    assert [history.manifests[save].step for save in lineage(history).saves] == [20]


def test_a_dry_run_proves_and_does_nothing(rtj: Rtj, old: Path, tmp_path: Path) -> None:
    done = rtj("import", old, *to(tmp_path), "--dry-run", "--all", "-o", "name")
    assert done.out.split() == ["ckpt_20.pt", "ckpt_10.pt"]
    assert "ckpt_30.pt" in done.words
    assert not (tmp_path / "store").exists()


def test_a_run_that_exists_is_not_touched(rtj: Rtj, old: Path, tmp_path: Path) -> None:
    rtj("import", old, *to(tmp_path))
    write_files(tmp_path / "other", {"ckpt_99.pt": torch_bytes(step=99)})
    done = rtj("import", tmp_path / "other", *to(tmp_path), code=4)
    assert "rtj checkpoints push" in done.words
    assert len(history_of(tmp_path).fences) == 1


def test_a_manifest_and_what_cannot_be_taken(rtj: Rtj, old: Path, tmp_path: Path) -> None:
    listed = [{"path": "ckpt_10.pt", "step": 10}, {"path": "ckpt_20.pt", "is_valid": False}]
    write_files(old, {"m.json": playbook(*listed)})
    done = rtj("import", old / "m.json", *to(tmp_path), "-o", "json")
    assert json.loads(done.out)["imported"][0]["rootKey"] == "ckpt_10.pt"
    assert "ckpt_20.pt: the manifest says that it is not valid" in done.words
    rtj("import", tmp_path / "nowhere", *to(tmp_path), code=3)
    rtj("import", "ftp://x/y", *to(tmp_path), code=2)
    write_files(tmp_path / "torn", {"ckpt_1.pt": torn(torch_bytes(step=1))})
    to_other = ["--store", (tmp_path / "store").as_uri(), "--run-id", "other"]
    assert "Torn" in rtj("import", tmp_path / "torn", *to_other, code=1).words
    write_files(tmp_path / "two", {"a.pt": torch_bytes(), "b.pt": torch_bytes()})
    words = rtj("import", tmp_path / "two", *to_other, code=1).words
    assert "Name the one to begin from" in words


def test_two_imports_of_one_source_at_once_overwrite_nothing(
    rtj: Rtj, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, begun = importing.send, []

    def meanwhile(*told: Any, **more: Any) -> Any:
        if not begun:
            begun.append(1)
            rtj("import", old, *to(tmp_path), "--all")
        return send(*told, **more)

    monkeypatch.setattr(importing, "send", meanwhile)
    rtj("import", old, *to(tmp_path), "--all")
    history = history_of(tmp_path)
    steps = [history.manifests[save].step for save in lineage(history).saves]
    assert steps == [20, 10, 10], "the newest stays the newest"
    keys = [file.key for manifest in history.manifests.values() for file in manifest.files]
    assert len(keys) == len(set(keys)), "no two write the same objects"
    run = run_in(open_store((tmp_path / "store").as_uri()), "team/gpt")
    for manifest in history.manifests.values():
        assert run.judging.examine(manifest.name, deep=True) == []
