"""`rtj checkpoints`: looked at, proved, fetched, added, marked, thinned out, and the exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.foreign import torch_bytes, torn, write_files
from rtj_cli.targets import run_in
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.imports import importing, places
from rtj_sidecar.runs.lineage import lineage
from rtj_sidecar.runs.records import Outcome, Parent
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.open import open_store

Rtj = Callable[..., Any]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SETTLE_S", 0.0)


@pytest.fixture
def url(rtj: Rtj, tmp_path: Path) -> str:
    """The run `team/gpt` with the saves of steps 10 to 60."""
    files = {f"ckpt_{n}.pt": torch_bytes(step=n) for n in range(10, 70, 10)}
    write_files(tmp_path / "old", files | {"latest": b"ckpt_60.pt"})
    store = (tmp_path / "store").as_uri()
    rtj("import", tmp_path / "old", "--store", store, "--run-id", "team/gpt", "--all")
    return f"{store}/team/gpt"


def data_of(url: str, name: str) -> Path:
    return Path(url.removeprefix("file://")) / "checkpoints" / name


def history_of(url: str) -> History:
    return run_in(open_store(url.removesuffix("/team/gpt")), "team/gpt").history()


def states(rtj: Rtj, url: str) -> dict[str, str]:
    rows = json.loads(rtj("checkpoints", "list", url, "-o", "json").out)
    return {row["name"]: row["state"] for row in rows}


def test_every_form_of_a_list(rtj: Rtj, url: str) -> None:
    table = rtj("checkpoints", "list", url).out
    assert "f1-n6-s60 ←" in table
    names = rtj("checkpoints", "list", url, "-o", "name").out.split()
    assert names == [f"f1-n{n}-s{n}0" for n in (6, 5, 4, 3, 2, 1)]
    told = json.loads(rtj("checkpoints", "list", url, "-o", "json").out)
    assert yaml.safe_load(rtj("checkpoints", "list", url, "-o", "yaml").out) == told
    store = url.removesuffix("/team/gpt")
    assert (
        rtj("checkpoints", "list", store, "--run-id", "team/gpt", "-o", "name").out.split() == names
    )
    assert rtj("checkpoints", "list", store, "-o", "name").out.split() == names, "the only run"


def test_one_save_with_all_its_records(rtj: Rtj, url: str) -> None:
    told = yaml.safe_load(rtj("checkpoints", "show", url).out)
    assert (told["name"], told["rootKey"], told["current"]) == ("f1-n6-s60", "ckpt_60.pt", True)
    assert {entry["path"] for entry in told["objects"]} == {"ckpt_60.pt"}
    assert told["facts"]["origin"]["name"] == "ckpt_60.pt"
    assert json.loads(rtj("checkpoints", "show", url, "f1-n2", "-o", "json").out)["step"] == 20


def test_proofs_and_their_exit_codes(rtj: Rtj, url: str, tmp_path: Path) -> None:
    rtj("checkpoints", "verify", url)
    rtj("checkpoints", "verify", url, "--all", "--deep")
    file = data_of(url, "f1-n3-s30") / "ckpt_30.pt"
    file.write_bytes(torn(file.read_bytes()))
    rows = json.loads(
        rtj("checkpoints", "verify", url, "--all", "--deep", "-o", "json", code=1).out
    )
    assert [row["name"] for row in rows if not row["valid"]] == ["f1-n3-s30"]
    assert "SHA-256" in rows[3]["bad"][0]["why"]
    rtj("checkpoints", "verify", url, "f1-n2-s20", "--deep")
    assert set(states(rtj, url).values()) == {"valid"}, "a look marks nothing"
    done = rtj("checkpoints", "verify", tmp_path / "old", "-o", "name")
    assert len(done.out.split()) == 6, "a directory, by its layouts' own gates"
    torn_one = tmp_path / "old" / "ckpt_60.pt"
    torn_one.write_bytes(torn(torn_one.read_bytes()))
    rtj("checkpoints", "verify", tmp_path / "old", code=1)
    rtj("checkpoints", "verify", tmp_path / "old", "ckpt_50.pt")


def test_a_pull_proves_goes_on_and_points(rtj: Rtj, url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = rtj("checkpoints", "pull", url, out)
    assert f"load {out}/ckpt_60.pt" in done.words
    assert (out / "ckpt_60.pt").read_bytes() == (tmp_path / "old" / "ckpt_60.pt").read_bytes()
    assert (out / "latest").read_text() == "ckpt_60.pt"
    inode = (out / "ckpt_60.pt").stat().st_ino
    rtj("checkpoints", "pull", url, out)
    assert (out / "ckpt_60.pt").stat().st_ino == inode, "what is there with its hash is kept"
    rtj("checkpoints", "verify", url, "latest", "--dir", out)
    (out / "ckpt_60.pt").write_bytes(b"x")
    rtj("checkpoints", "verify", url, "latest", "--dir", out, code=1)
    rtj("checkpoints", "pull", url, out)
    assert (out / "ckpt_60.pt").stat().st_size > 1
    file = data_of(url, "f1-n1-s10") / "ckpt_10.pt"
    file.write_bytes(torn(file.read_bytes()))
    rtj("checkpoints", "pull", url, out, "f1-n1-s10", code=1)
    assert not (out / "ckpt_10.pt").exists(), "nothing unproved is left"


def test_marks_and_pins_and_taking_them_back(rtj: Rtj, url: str) -> None:
    rtj("checkpoints", "mark", url, "f1-n6-s60", "poison", "--reason", "loss explodes after it")
    assert states(rtj, url)["f1-n6-s60"] == "poison"
    told = yaml.safe_load(rtj("checkpoints", "show", url, "f1-n6-s60").out)
    assert told["marks"][0]["evidence"]["said"] == "loss explodes after it"
    assert told["marks"][0]["reason"] == "MarkedByPerson"
    assert json.loads(rtj("checkpoints", "show", url, "-o", "json").out)["step"] == 50
    rtj("checkpoints", "mark", url, "f1-n6-s60", "good", "--reason", "it was the data")
    assert states(rtj, url)["f1-n6-s60"] == "valid"
    rtj("checkpoints", "mark", url, "f1-n6-s60", "poison", "--reason", "no, it was not")
    assert states(rtj, url)["f1-n6-s60"] == "poison"
    for word, pinned in (("pin", True), ("unpin", False), ("pin", True)):
        rtj("checkpoints", word, url, "f1-n2-s20")
        rows = json.loads(rtj("checkpoints", "list", url, "-o", "json").out)
        assert {row["name"] for row in rows if row["pinned"]} == (
            {"f1-n2-s20"} if pinned else set()
        )
    for n in range(1, 6):
        rtj("checkpoints", "mark", url, f"f1-n{n}", "invalid", "--reason", "x")
    done = rtj("checkpoints", "mark", url, "f1-n5", "invalid", "--reason", "x")
    assert "no valid save is left" in done.words


def test_prune_shows_then_marks_then_removes_an_hour_later(
    rtj: Rtj, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rtj("checkpoints", "prune", url, code=2)
    rtj("checkpoints", "pin", url, "f1-n1-s10")
    keep = ("--keep-last", "2", "--thin", "none")
    rows = json.loads(rtj("checkpoints", "prune", url, *keep, "-o", "json").out)
    assert [row["name"] for row in rows if row["goes"]] == ["f1-n4-s40", "f1-n3-s30", "f1-n2-s20"]
    assert set(states(rtj, url).values()) == {"valid"}, "only shown"
    done = rtj("checkpoints", "prune", url, *keep, "--yes")
    assert "marked: f1-n2-s20, f1-n3-s30, f1-n4-s40; removed: none" in done.words
    assert data_of(url, "f1-n2-s20").exists()
    rtj("checkpoints", "pin", url, "f1-n4-s40")
    import time

    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3700)
    monkeypatch.setattr("rtj_sidecar.runs.retain.GRACE_S", 0.0)
    done = rtj("checkpoints", "prune", url, *keep, "--yes")
    assert "removed: f1-n2-s20, f1-n3-s30" in done.words
    assert [p.name for p in sorted(data_of(url, "").iterdir()) if any(p.iterdir())] == [
        "f1-n1-s10",
        "f1-n4-s40",
        "f1-n5-s50",
        "f1-n6-s60",
    ]


def held(url: str, *, outcome: Outcome | None) -> None:
    """A job goes on with the run."""
    store = open_store(url.removesuffix("/team/gpt"))
    run = run_in(store, "team/gpt", job_uid="a job")
    claimed = run.claim(attempt=1, world_size=1)
    run.set_parent(fence=claimed.fence, parent=Parent(name="f1-n6-s60", step=60))
    if outcome is not None:
        run.set_outcome(fence=claimed.fence, outcome=outcome)


@pytest.mark.parametrize("outcome", [Outcome.RELEASED, Outcome.FAILED, Outcome.COMPLETE])
def test_a_push_is_a_branch_and_leaves_the_run_as_it_was(
    rtj: Rtj, url: str, tmp_path: Path, outcome: Outcome
) -> None:
    held(url, outcome=outcome)
    write_files(tmp_path / "mine", {"ckpt_55.pt": torch_bytes(step=55)})
    done = rtj("checkpoints", "push", url, tmp_path / "mine" / "ckpt_55.pt", "-o", "name")
    (name,) = done.out.split()
    assert f"resumeFrom: {name}" in done.words
    history = run_in(open_store(url.removesuffix("/team/gpt")), "team/gpt").history()
    assert [history.manifests[s].name for s in lineage(history).branches] == [name]
    assert history.fences[-1].outcome is outcome
    assert json.loads(rtj("checkpoints", "show", url, "-o", "json").out)["name"] == "f1-n6-s60"


def test_a_push_that_is_killed_leaves_the_run_as_it_was(
    rtj: Rtj, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any, **__: Any) -> Any:
        raise SystemExit(137)

    held(url, outcome=Outcome.COMPLETE)
    mine = tmp_path / "mine" / "ckpt_55.pt"
    write_files(mine.parent, {mine.name: torch_bytes(step=55)})
    with monkeypatch.context() as killed:
        killed.setattr(importing, "send", dies)
        killed.setattr(Run, "set_outcome", dies)
        rtj("checkpoints", "push", url, mine, code=137)
    assert history_of(url).fences[-1].outcome is Outcome.COMPLETE
    rtj("checkpoints", "push", url, mine)
    assert history_of(url).fences[-1].outcome is Outcome.COMPLETE, "and done again, too"
    mine.write_bytes(torn(mine.read_bytes()))
    before = history_of(url).fences
    rtj("checkpoints", "push", url, mine, code=1)
    assert history_of(url).fences == before, "proved first, claimed last"


def test_a_run_that_a_job_holds_is_not_taken_from_it(rtj: Rtj, url: str, tmp_path: Path) -> None:
    held(url, outcome=None)
    done = rtj("checkpoints", "push", url, tmp_path / "old" / "ckpt_10.pt", code=4)
    assert "would be stopped" in done.words
    done = rtj("checkpoints", "prune", url, "--keep-last", "1", "--thin", "none", "--yes")
    assert "removed: none" in done.words
    assert "f1-n6-s60" not in done.words.partition("marked:")[2], "what the job began from"


def test_what_is_not_there_and_what_is_wrong(rtj: Rtj, url: str, tmp_path: Path) -> None:
    store = url.removesuffix("/team/gpt")
    assert "it has: team/gpt" in rtj("checkpoints", "list", store, "--run-id", "x", code=3).words
    assert "it has: f1-n6-s60" in rtj("checkpoints", "show", url, "f9-n9", code=3).words
    rtj("checkpoints", "list", (tmp_path / "nowhere").as_uri(), code=3)
    rtj("checkpoints", "list", "gs2://x/y", code=2)
    assert "no archive" in rtj("checkpoints", "restore", url, "latest", code=4).words
    rtj("checkpoints", "mark", url, "latest", "bad", "--reason", "x", code=2)
    rtj("checkpoints", "prune", url, "--keep-last", "1", "--keep-best", "loss:up", code=2)
    unreachable = ("--endpoint", "http://127.0.0.1:9", "--run-id", "x")
    rtj("checkpoints", "list", "s3://b/p", *unreachable, code=5)


def a_kubectl(directory: Path, body: str) -> str:
    path = directory / "kubectl"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("by", ["url", "job"])
def test_prune_never_leaves_only_saves_that_lack_what_the_job_needs(
    rtj: Rtj, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    record = Path(url.removeprefix("file://")) / "manifests" / "f1-n6.json"
    told = json.loads(record.read_text())
    lost = {"held": [], "missing": ["optimizer"], "where": ["ckpt_60.pt"], "unread": []}
    record.write_text(json.dumps({**told, "facts": {**told["facts"], "required": lost}}))
    words = ("--keep-last", 1, "--thin", "none", "--yes")
    if by == "url":
        done = rtj("checkpoints", "prune", url, *words, code=4)
        assert "f1-n6-s60 has no 'optimizer'" in done.words
        assert set(states(rtj, url).values()) == {"valid"}
        rtj("checkpoints", "mark", url, "f1-n6-s60", "invalid", "--reason", "no optimizer")
        rtj("checkpoints", "prune", url, *words)
    else:
        checkpoint = {
            "store": {"url": url.removesuffix("/team/gpt")},
            "validation": {"requiredKeys": ["optimizer"]},
        }
        job = {
            "metadata": {"namespace": "team", "name": "gpt"},
            "spec": {"checkpoint": checkpoint},
        }
        (tmp_path / "job.json").write_text(json.dumps(job))
        monkeypatch.setenv("KUBECTL", a_kubectl(tmp_path, f"cat {tmp_path}/job.json"))
        rtj("checkpoints", "prune", "team/gpt", *words)
    assert states(rtj, url)["f1-n5-s50"] == "valid"
    assert states(rtj, url)["f1-n4-s40"] == "going"


def test_a_job_is_read_with_the_persons_own_rights(
    rtj: Rtj, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {
        "metadata": {"namespace": "team", "name": "gpt"},
        "spec": {
            "checkpoint": {
                "path": "/c",
                "store": {"url": url.removesuffix("/team/gpt")},
                "retention": {"keepLast": 1, "thin": "none"},
            }
        },
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    script = f"""
    case "$*" in
    *" gpt "*) cat {tmp_path}/job.json;;
    *" other "*) echo 'Error from server (Forbidden): rtj is forbidden' >&2; exit 1;;
    *) echo 'Error from server (NotFound): not found' >&2; exit 1;;
    esac"""
    monkeypatch.setenv("KUBECTL", a_kubectl(tmp_path, script))
    assert len(rtj("checkpoints", "list", "gpt", "-n", "team", "-o", "name").out.split()) == 6
    rows = json.loads(rtj("checkpoints", "prune", "team/gpt", "-o", "json").out)
    assert sum(row["goes"] for row in rows) == 5, "by the job's own retention"
    assert "auth can-i" in rtj("checkpoints", "list", "other", code=5).words
    rtj("checkpoints", "list", "nobody", code=3)
    monkeypatch.setenv("KUBECTL", "no-such-kubectl")
    assert "--run-id" in rtj("checkpoints", "list", "gpt", code=2).words
    assert os.environ["KUBECTL"] == "no-such-kubectl"
