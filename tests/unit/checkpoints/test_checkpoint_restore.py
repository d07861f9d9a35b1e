"""A restore leaves exactly the chosen save as the newest, loses nothing, and can be interrupted."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.checkpoint_looks import judged, snapshot_of
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.pin_choice import PinHow
from rtj_sidecar.checkpoints.pins import pin_save
from rtj_sidecar.checkpoints.quarantine import free_quarantine, quarantine_dir
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.restore import (
    Owner,
    RestoreError,
    apply_restore,
    incoming_dir,
    survey,
)
from rtj_sidecar.checkpoints.restore_plan import (
    Chosen,
    LocalBytes,
    RestorePlan,
    plan_restore,
    plan_set_aside,
)
from rtj_sidecar.checkpoints.types import (
    FoundSave,
    Pointer,
    PointerKind,
    Status,
    WantedFile,
)

Fresh = Callable[[str], Path]


def wanted(root: Path, *paths: str) -> tuple[WantedFile, ...]:
    found = []
    for path in paths:
        content = (root / path).read_bytes()
        mode = os.stat(root / path).st_mode & 0o777
        found.append(WantedFile(path, len(content), hashlib.sha256(content).hexdigest(), mode))
    return tuple(found)


def chosen_of(save: FoundSave, root: Path, **more: object) -> Chosen:
    files = wanted(root, *(entry.path for entry in save.all_files))
    return Chosen(save.root_key, save.step, save.epoch, files, **more)  # type: ignore[arg-type]


def plan_for(root: Path, chosen: Chosen, restore_id: str = "r") -> RestorePlan:
    reader = Reader(root)
    snapshot = snapshot_of(root, reader=reader)
    verdicts = {save.identity: verdict for save, verdict in judged(root, reader=reader).values()}
    local = survey(reader=reader, snapshot=snapshot, chosen=chosen, restore_id=restore_id)
    return plan_restore(snapshot=snapshot, verdicts=verdicts, chosen=chosen, local=local)


def fetch(plan: RestorePlan, source: Path, root: Path, restore_id: str = "r") -> None:
    for file in plan.fetch:
        place = incoming_dir(root, restore_id) / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file.path, place)


def restore(root: Path, chosen: Chosen, source: Path, attempt: int = 1) -> RestorePlan:
    plan = plan_for(root, chosen)
    fetch(plan, source, root)
    apply_restore(root=root, plan=plan, restore_id="r", attempt=attempt)
    return plan


def test_valid_local_files_cost_no_byte_and_nothing_moves(fresh: Fresh, originals: Path) -> None:
    root = fresh("torch")
    save = judged(root)["ckpt_1000.pt"][0]
    before = {path: path.stat().st_ino for path in root.iterdir()}
    plan = restore(root, chosen_of(save, originals / "torch"), originals)
    assert (plan.bytes_to_fetch, plan.place, plan.quarantine) == (0, (), ())
    assert {path: path.stat().st_ino for path in root.iterdir() if path.name != ".rtj"} == before


def test_into_an_empty_directory(originals: Path, tmp_path: Path) -> None:
    root = tmp_path / "new"
    root.mkdir()
    save = judged(originals / "dcp")["step-2"][0]
    plan = restore(root, chosen_of(save, originals / "dcp"), originals / "dcp")
    assert plan.bytes_to_fetch == save.size
    found, verdict = judged(root)["step-2"]
    assert verdict.status is Status.VERIFIED
    assert found.step == 2
    assert not incoming_dir(root, "r").exists()
    for entry in save.files:
        assert (root / entry.path).read_bytes() == (originals / "dcp" / entry.path).read_bytes()


def test_a_torn_newest_goes_to_quarantine_and_an_older_one_is_the_newest(
    fresh: Fresh, originals: Path
) -> None:
    root = fresh("hf")
    torn = (root / "checkpoint-4" / "optimizer.pt").read_bytes()[:1000]
    (root / "checkpoint-4" / "optimizer.pt").write_bytes(torn)
    save = judged(root)["checkpoint-2"][0]
    plan = restore(root, chosen_of(save, originals / "hf"), originals, attempt=7)
    assert plan.quarantine == ("checkpoint-4",)
    assert plan.bytes_to_fetch == 0
    assert not (root / "checkpoint-4").exists()
    kept = quarantine_dir(root, 7) / "checkpoint-4" / "optimizer.pt"
    assert kept.read_bytes() == torn
    assert list(judged(root)) == ["checkpoint-2"]


def test_what_a_rotation_left_is_set_aside(fresh: Fresh, originals: Path) -> None:
    root = fresh("dcp")
    reader = Reader(root)
    chosen = chosen_of(judged(root, reader=reader)["step-2"][0], originals / "dcp")
    (root / "step-1" / "__0_0.distcp").unlink()
    found = judged(root, reader=reader)
    plan = plan_restore(
        snapshot=snapshot_of(root, reader=reader),
        verdicts={save.identity: verdict for save, verdict in found.values()},
        chosen=chosen,
        local=LocalBytes(in_place={file.path: file.sha256 for file in chosen.files}),
    )
    assert found["step-1"][1].status is Status.UNKNOWN
    assert plan.quarantine == ("step-1",)


def test_a_valid_but_newer_save_does_not_stay_in_the_way(fresh: Fresh, originals: Path) -> None:
    root = fresh("torch")
    save = judged(root)["ckpt_999.pt"][0]
    plan = restore(root, chosen_of(save, originals / "torch"), originals)
    assert plan.quarantine == ("ckpt_1000.pt",)
    assert set(judged(root)) == {"ckpt_5.pt", "ckpt_10.pt", "ckpt_999.pt"}


def test_a_partly_valid_directory_gets_only_what_is_missing(fresh: Fresh, originals: Path) -> None:
    root = fresh("dcp")
    (root / "step-2" / "__1_0.distcp").write_bytes(b"torn")
    (root / "step-2" / "extra.bin").write_bytes(b"of another save")
    save = judged(originals / "dcp")["step-2"][0]
    plan = restore(root, chosen_of(save, originals / "dcp"), originals / "dcp")
    assert [file.path for file in plan.fetch] == ["step-2/__1_0.distcp"]
    assert set(plan.quarantine) == {"step-2/__1_0.distcp", "step-2/extra.bin"}
    assert judged(root)["step-2"][1].status is Status.VERIFIED
    assert (quarantine_dir(root, 1) / "step-2" / "__1_0.distcp").read_bytes() == b"torn"


def test_an_overwritten_file_comes_back_from_its_pin(fresh: Fresh, originals: Path) -> None:
    """torch.save over the same name, killed in the middle: the pin holds the last whole one."""
    root = fresh("reused")
    reader = Reader(root)
    save = judged(root, reader=reader)["ckpt.pt"][0]
    pin_save(reader=reader, save=save, pin_id="p", how={"ckpt.pt": PinHow.COPY})
    with open(root / "ckpt.pt", "wb") as file:
        file.write(b"PK\x03\x04 half of the next one")
    chosen = chosen_of(save, originals / "reused")
    plan = restore(root, chosen, originals)
    assert (plan.bytes_to_fetch, plan.from_pins) == (0, (("p", chosen.files[0]),))
    assert judged(root)["ckpt.pt"][1].status is Status.VERIFIED
    pinned = root / ".rtj" / "pins" / "p" / "files" / "ckpt.pt"
    assert pinned.stat().st_ino != (root / "ckpt.pt").stat().st_ino


def test_the_restored_save_is_the_newest_by_time(fresh: Fresh, originals: Path) -> None:
    """Lightning's "last", rotation and others decide by mtime."""
    root = fresh("torch")
    in_the_future = 4_000_000_000  # a clock that was set back since
    os.utime(root / "ckpt_10.pt", (in_the_future, in_the_future))
    os.utime(root / "ckpt_5.pt", (1_000_000_000, 1_000_000_000))
    save = judged(root)["ckpt_999.pt"][0]
    os.utime(root / "ckpt_999.pt", (900_000_000, 900_000_000))
    plan = restore(root, chosen_of(save, originals / "torch"), originals)
    assert plan.touch == ("ckpt_999.pt",)
    times = {path.name: path.stat().st_mtime_ns for path in root.glob("*.pt")}
    assert max(times, key=lambda name: times[name]) == "ckpt_999.pt"


def test_pointers_are_rebuilt(fresh: Fresh, originals: Path) -> None:
    root = fresh("torch")
    (root / "last.ckpt").symlink_to("ckpt_1000.pt")
    (root / "latest").write_text("ckpt_1000.pt\n")
    (root / "latest_checkpointed_iteration.txt").write_text("")
    save = judged(root)["ckpt_10.pt"][0]
    tracker = Pointer("tracker.txt", PointerKind.TEXT, "10", "ckpt_10.pt")
    escape = Pointer("bad", PointerKind.LINK, "../../etc", None)
    chosen = chosen_of(save, originals / "torch", pointers=(tracker, escape))
    restore(root, chosen, originals)
    assert os.readlink(root / "last.ckpt") == "ckpt_10.pt"
    assert (root / "latest").read_text() == "ckpt_10.pt\n"
    assert (root / "tracker.txt").read_text() == "10"
    assert not (root / "bad").is_symlink()


def test_companions_come_back_but_a_log_that_grew_stays(fresh: Fresh, tmp_path: Path) -> None:
    root, source = fresh("torch"), tmp_path / "source"
    shutil.copytree(root, source)
    for place in (root, source):
        (place / "state.txt").write_text("epoch 1")
        (place / "history.csv").write_text("1,0.5\n")
        (place / "args.json").write_text("{}")
    save = judged(root)["ckpt_1000.pt"][0]
    companions = wanted(source, "state.txt", "history.csv", "args.json")
    (root / "state.txt").write_text("epoch 2")
    (root / "history.csv").write_text("1,0.5\n2,0.4\n")
    (root / "args.json").unlink()
    plan = restore(root, chosen_of(save, source, companions=companions), source)
    assert {file.path for file in plan.place} == {"state.txt", "args.json"}
    assert (root / "state.txt").read_text() == "epoch 1"
    assert (root / "history.csv").read_text() == "1,0.5\n2,0.4\n"
    assert (root / "args.json").read_text() == "{}"
    assert (quarantine_dir(root, 1) / "state.txt").read_text() == "epoch 2"


def test_a_start_from_nothing_sets_everything_aside(fresh: Fresh) -> None:
    root = fresh("hf")
    shutil.copy2(root / "checkpoint-4" / "optimizer.pt", root / "notes.bin")
    (root / "latest").write_text("checkpoint-4")
    (root / "args.json").write_text("{}")
    plan = plan_set_aside(snapshot_of(root))
    apply_restore(root=root, plan=plan, restore_id="scratch", attempt=3)
    assert judged(root) == {}
    assert {path.name for path in quarantine_dir(root, 3).iterdir()} >= {
        "checkpoint-2",
        "checkpoint-4",
        "latest",
    }
    assert (root / "args.json").exists()


def test_an_alias_leaves_with_its_save(fresh: Fresh, originals: Path) -> None:
    root = fresh("dcp")
    newer = originals / "torch" / "ckpt_5.pt"
    (root / "step-5").mkdir()
    shutil.copy2(newer, root / "step-5" / "model.pt")
    shutil.copy2(newer, root / "last.pt")
    save = judged(root)["step-2"][0]
    plan = restore(root, chosen_of(save, originals / "dcp"), originals)
    assert plan.quarantine == ("last.pt", "step-5")


def test_links_and_directories_in_the_way_are_set_aside(originals: Path, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "step-2").symlink_to(outside, target_is_directory=True)
    save = judged(originals / "dcp")["step-2"][0]
    plan = restore(root, chosen_of(save, originals / "dcp"), originals / "dcp")
    assert plan.quarantine == ("step-2",)
    assert list(outside.iterdir()) == []
    assert not (root / "step-2").is_symlink()
    assert judged(root)["step-2"][1].status is Status.VERIFIED


def test_a_manifest_cannot_write_outside(tmp_path: Path) -> None:
    chosen = Chosen("x", 1, None, (WantedFile("../x", 1, "00"),))
    with pytest.raises(UnsafePathError):
        plan_restore(snapshot=snapshot_of(tmp_path), verdicts={}, chosen=chosen, local=LocalBytes())


def test_what_was_not_fetched_whole_is_not_placed(originals: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "ckpt_1000.pt").write_bytes(b"torn, but the only one")
    save = judged(originals / "torch")["ckpt_1000.pt"][0]
    plan = plan_for(root, chosen_of(save, originals / "torch"))
    fetch(plan, originals / "torch", root)
    with open(incoming_dir(root, "r") / "ckpt_1000.pt", "ab") as file:
        file.truncate(1000)
    with pytest.raises(RestoreError, match=r"ckpt_1000.pt has 1000 bytes"):
        apply_restore(root=root, plan=plan, restore_id="r", attempt=1)
    assert (root / "ckpt_1000.pt").read_bytes() == b"torn, but the only one"


def test_files_are_handed_to_the_trainer(originals: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    save = judged(originals / "dcp")["step-2"][0]
    plan = plan_for(root, chosen_of(save, originals / "dcp"))
    fetch(plan, originals / "dcp", root)
    owner = Owner(os.getuid() + 12, os.getgid() + 34) if os.getuid() == 0 else None
    apply_restore(root=root, plan=plan, restore_id="r", attempt=1, owner=owner)
    for path in ("step-2", "step-2/.metadata"):
        status = os.stat(root / path)
        expected = (owner.uid, owner.gid) if owner else (os.getuid(), os.getgid())
        assert (status.st_uid, status.st_gid) == expected


def test_quarantine_gives_way_oldest_first_and_only_as_far_as_needed(tmp_path: Path) -> None:
    assert free_quarantine(tmp_path, wanted=1) == 0
    for attempt in (2, 10, 3):
        place = quarantine_dir(tmp_path, attempt) / "step_1"
        place.mkdir(parents=True)
        (place / "model.pt").write_bytes(b"x" * 100_000)
    os.link(quarantine_dir(tmp_path, 2) / "step_1" / "model.pt", tmp_path / "pinned")
    assert free_quarantine(tmp_path, wanted=0) == 0
    assert free_quarantine(tmp_path, wanted=50_000) >= 100_000
    kept = {path.name for path in quarantine_dir(tmp_path, 10).parent.iterdir()}
    assert kept == {"10"}, "attempt 2 freed nothing, for its file is pinned; 3 was enough"
    assert (tmp_path / "pinned").stat().st_size == 100_000


class Crash(BaseException):
    """The machine stopped between two system calls."""


def test_a_crash_between_any_two_calls_is_finished_by_running_again(
    fresh: Fresh, originals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost at any point, and the second run ends where an undisturbed one ends."""
    calls = 0
    limit = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == limit:
                raise Crash
            return real(*args, **kwargs)

        return call

    source = originals / "dcp"
    chosen = chosen_of(judged(source)["step-1"][0], source)
    crashes = 0
    while True:
        limit += 1
        root = fresh("dcp")
        (root / "step-1" / "__0_0.distcp").write_bytes(b"torn")
        (root / "step-1" / "__1_0.distcp").unlink()
        (root / "latest").write_text("step-2")
        plan = plan_for(root, chosen)
        fetch(plan, source, root)
        crashed = False
        with monkeypatch.context() as patch:
            for name in ("rename", "utime", "chmod", "fsync"):
                patch.setattr(os, name, counted(getattr(os, name)))
            calls = 0
            try:
                apply_restore(root=root, plan=plan, restore_id="r", attempt=1)
            except Crash:
                crashed = True
        if crashed:
            crashes += 1
            again = plan_for(root, chosen)
            fetch(again, source, root)
            apply_restore(root=root, plan=again, restore_id="r", attempt=1)
        found = judged(root)
        assert {key: verdict.status for key, (_, verdict) in found.items()} == {
            "step-1": Status.VERIFIED
        }
        for file in chosen.files:
            assert (root / file.path).read_bytes() == (source / file.path).read_bytes()
        assert (root / "latest").read_text() == "step-1"
        aside = quarantine_dir(root, 1)
        assert (aside / "step-1" / "__0_0.distcp").read_bytes() == b"torn"
        assert (aside / "step-2" / ".metadata").exists()
        assert plan_for(root, chosen).place == ()
        shutil.rmtree(root)
        if not crashed:
            break
    assert crashes > 10
