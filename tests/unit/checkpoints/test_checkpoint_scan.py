"""What one look at a directory finds, and what it must never follow, enter or trip over."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import pytest
from kit.checkpoint_looks import judged, snapshot_of
from rtj_sidecar.checkpoints import reader as reading
from rtj_sidecar.checkpoints.layouts import UnknownLayoutError, layouts_for
from rtj_sidecar.checkpoints.layouts.names import Numbers, numbers_in
from rtj_sidecar.checkpoints.paths import UnsafePathError, open_below, resolve_link, safe_relative
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import PointerKind, Reason, Status


def torch_like(path: Path, content: bytes = b"\x80\x02}.") -> None:
    """The smallest archive that torch.save might have written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", content)
        archive.writestr("x/version", "3\n")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ckpt_10.pt", Numbers(weak=10, rank_of_word=2, sure=True)),
        ("checkpoint-1000", Numbers(weak=1000, rank_of_word=2, sure=True)),
        ("epoch=3-step=0450-val_loss=0.25.ckpt", Numbers(450, 3, None, 3, True)),
        ("ep10-ba20-rank0.pt", Numbers(20, 10, None, 3, True)),
        ("iter_0000010", Numbers(10, None, None, 3, True)),
        ("global_step500", Numbers(500, None, None, 3, True)),
        ("model_3.pt", Numbers(weak=3, rank_of_word=1, sure=True)),
        ("7", Numbers(weak=7, rank_of_word=1, sure=True)),
        ("gpt-2.pt", Numbers(weak=2, rank_of_word=1, sure=False)),
        ("model-00001-of-00003.safetensors", Numbers()),
        ("resnet50.pt", Numbers()),
        ("llama-7b.pt", Numbers()),
        ("last-v1.ckpt", Numbers()),
        ("version_0", Numbers()),
        ("latest.pt", Numbers()),
        ("loss=0.25.pt", Numbers()),
    ],
)
def test_numbers_in_names(name: str, expected: Numbers) -> None:
    assert numbers_in(name) == expected


def test_numbered_directories_own_what_is_in_them(tmp_path: Path) -> None:
    for path in ("step_10/model.pt", "step_10/optim/state.pt", "run_2/ckpt_5.pt", "7/model_0.pt"):
        torch_like(tmp_path / path)
    (tmp_path / "step_10" / "config.json").write_text("{}")
    saves = {save.root_key: save for save in snapshot_of(tmp_path).saves}
    assert {entry.path for entry in saves["step_10"].files} == {
        "step_10/model.pt",
        "step_10/optim/state.pt",
        "step_10/config.json",
    }
    assert saves["run_2/ckpt_5.pt"].step == 5


def test_our_own_directory_and_temporary_files_are_not_seen(tmp_path: Path) -> None:
    torch_like(tmp_path / ".rtj" / "pins" / "a" / "files" / "ckpt_1.pt")
    torch_like(tmp_path / "ckpt_2.pt.tmp")
    torch_like(tmp_path / "ckpt_3.pt")
    assert [save.root_key for save in snapshot_of(tmp_path).saves] == ["ckpt_3.pt"]


def test_a_directory_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert snapshot_of(tmp_path / "later").saves == ()


def test_links_are_pointers_and_are_never_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    torch_like(root / "ckpt_10.pt")
    torch_like(outside / "ckpt_99.pt")
    (root / "last.pt").symlink_to("ckpt_10.pt")
    (root / "latest").symlink_to("/etc/passwd")
    (root / "escape").symlink_to(outside, target_is_directory=True)
    (root / "ckpt_50.pt").symlink_to(outside / "ckpt_99.pt")
    snapshot = snapshot_of(root)
    assert [save.root_key for save in snapshot.saves] == ["ckpt_10.pt"]
    assert {(p.path, p.kind, p.names) for p in snapshot.pointers} == {
        ("last.pt", PointerKind.LINK, "ckpt_10.pt")
    }
    assert {link.path: link.resolved for link in snapshot.links} == {
        "ckpt_50.pt": None,
        "escape": None,
        "last.pt": "ckpt_10.pt",
        "latest": None,
    }


def test_text_pointers_and_companions(tmp_path: Path) -> None:
    torch_like(tmp_path / "iter_0000010" / "model.pt")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    (tmp_path / "latest").write_text("iter_0000010")
    (tmp_path / "newest.txt").write_text("out/iter_0000010\n")
    (tmp_path / "args.json").write_text('{"lr": 0.1}')
    (tmp_path / "train.log").write_text("step 10\n")
    (tmp_path / "vocab.bin").write_bytes(bytes(2 << 20))
    (tmp_path / ".env").write_text("TOKEN=secret")
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "tls.key").write_text("secret")
    snapshot = snapshot_of(tmp_path)
    assert {pointer.path: pointer.names for pointer in snapshot.pointers} == {
        "latest": "iter_0000010",
        "latest_checkpointed_iteration.txt": "iter_0000010",
        "newest.txt": "iter_0000010",
    }
    assert [entry.path for entry in snapshot.companions] == ["args.json"]


def test_a_pointer_to_nothing_is_a_hint_that_names_nothing(tmp_path: Path) -> None:
    torch_like(tmp_path / "ckpt_10.pt")
    (tmp_path / "latest").write_text("ckpt_20.pt")
    (tmp_path / "last.ckpt").symlink_to("gone.ckpt")
    assert {p.path: p.names for p in snapshot_of(tmp_path).pointers} == {
        "latest": None,
        "last.ckpt": None,
    }


def test_an_unchanged_directory_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_like(tmp_path / "ckpt_1.pt")
    (tmp_path / "latest").write_text("ckpt_1.pt")
    reader = Reader(tmp_path)
    first = snapshot_of(tmp_path, reader=reader)
    judged(tmp_path, reader=reader)

    def refuse(*_: object) -> None:
        raise AssertionError("an unchanged file was opened")

    monkeypatch.setattr(reading, "open_below", refuse)
    assert snapshot_of(tmp_path, reader=reader, previous=first) is first
    assert snapshot_of(tmp_path, reader=reader).saves == first.saves
    assert judged(tmp_path, reader=reader)["ckpt_1.pt"][1].status is Status.VERIFIED


def test_a_save_that_only_loses_files_is_being_rotated_away(tmp_path: Path) -> None:
    for name in ("model.pt", "optim.pt", "rng.pt"):
        torch_like(tmp_path / "step_10" / name)
    first = snapshot_of(tmp_path)
    (tmp_path / "step_10" / "optim.pt").unlink()
    second = snapshot_of(tmp_path, previous=first)
    assert second.shrinking == {"step_10"}
    assert snapshot_of(tmp_path, previous=second).shrinking == frozenset(), "it stopped"
    torch_like(tmp_path / "step_10" / "optim.pt")
    assert snapshot_of(tmp_path, previous=second).shrinking == frozenset()


def test_what_a_rotation_left_of_a_save_is_no_save(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz", "c.npz"):
        (tmp_path / "step_10").mkdir(exist_ok=True)
        (tmp_path / "step_10" / name).write_bytes(b"x")
    reader = Reader(tmp_path)
    assert judged(tmp_path, reader=reader, layout="generic")["step_10"][1].candidate
    (tmp_path / "step_10" / "b.npz").unlink()
    for _ in range(3):
        verdict = judged(tmp_path, reader=reader, layout="generic")["step_10"][1]
        assert (verdict.status, verdict.reason) == (Status.UNKNOWN, Reason.BEING_REMOVED)
    (tmp_path / "step_10" / "b.npz").write_bytes(b"y")
    assert judged(tmp_path, reader=reader, layout="generic")["step_10"][1].candidate


def test_a_save_that_drops_its_unfinished_mark_is_finishing(tmp_path: Path) -> None:
    for name in ("a.npz", "UNFINISHED"):
        (tmp_path / "step_10").mkdir(exist_ok=True)
        (tmp_path / "step_10" / name).write_bytes(b"x")
    reader = Reader(tmp_path)
    busy = Writers(open_paths=frozenset({"step_10/UNFINISHED"}))
    first = judged(tmp_path, reader=reader, layout="generic", writers=busy)["step_10"][1]
    assert first.status is Status.WRITING
    (tmp_path / "step_10" / "UNFINISHED").unlink()
    assert judged(tmp_path, reader=reader, layout="generic")["step_10"][1].candidate


def test_files_that_vanish_during_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        torch_like(tmp_path / f"step_{step}" / "model.pt")
    real = os.scandir

    def rotating(path: os.PathLike[str]) -> object:
        if str(path).endswith("step_1"):
            (tmp_path / "step_1" / "model.pt").unlink()
            (tmp_path / "step_1").rmdir()
        return real(path)

    monkeypatch.setattr(os, "scandir", rotating)
    assert [save.root_key for save in snapshot_of(tmp_path).saves] == ["step_2"]


def test_special_files_are_reported_and_not_opened(tmp_path: Path) -> None:
    torch_like(tmp_path / "ckpt_1.pt")
    os.mkfifo(tmp_path / "ckpt_2.pt")
    snapshot = snapshot_of(tmp_path)
    assert [odd.path for odd in snapshot.odd] == ["ckpt_2.pt"]
    assert [save.root_key for save in snapshot.saves] == ["ckpt_1.pt"]


def test_opening_never_leaves_the_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(root / "fifo")
    for path in ("link", "a/up/secret", "fifo", "../secret", "/etc/passwd", "a//b", ""):
        with pytest.raises((UnsafePathError, NotADirectoryError)):
            with open_below(root, path):
                pass


def test_link_targets_are_resolved_without_the_disk() -> None:
    assert resolve_link(link="a/last", target="b") == "a/b"
    assert resolve_link(link="a/last", target="../c/d") == "c/d"
    assert resolve_link(link="last", target="../c") is None
    assert resolve_link(link="last", target="/c") is None
    assert safe_relative("a/b") == "a/b"


def test_generic_saves_need_include_or_the_layout_and_settle(tmp_path: Path) -> None:
    (tmp_path / "step_5").mkdir()
    (tmp_path / "step_5" / "weights.npz").write_bytes(b"anything")
    (tmp_path / "step_6").mkdir()
    (tmp_path / "step_6" / "weights.npz").write_bytes(b"anything")
    (tmp_path / "notes.txt").write_text("no step")
    assert judged(tmp_path) == {}
    looks = [judged(tmp_path, include=[g]) for g in ("step_*", "step_*/", "./step_*", "**/*.npz")]
    for found in (*looks, judged(tmp_path, layout="generic")):
        assert {key: save.step for key, (save, _) in found.items()} == {"step_5": 5, "step_6": 6}
        assert found["step_6"][1].status is Status.SETTLED
        assert found["step_6"][1].candidate
        assert found["step_6"][1].facts["gates"] == {
            "marker": None,
            "container": None,
            "set": None,
            "quiet": True,
        }


def test_final_weights_are_a_save_of_their_own(tmp_path: Path) -> None:
    """They come after the last full save was shipped and must not hide behind it."""
    torch_like(tmp_path / "step_10.pt", pickle.dumps({"step": 10, "optimizer": {}}, 2))
    torch_like(tmp_path / "final.pt", pickle.dumps({"step": 10, "model": {}}, 2))
    torch_like(tmp_path / "last.pt", pickle.dumps({"step": 10, "optimizer": {}}, 2))
    saves = {save.root_key: save for save in snapshot_of(tmp_path).saves}
    assert set(saves) == {"step_10.pt", "final.pt"}
    assert (saves["final.pt"].step, saves["final.pt"].full_state) == (10, False)
    assert [entry.path for entry in saves["step_10.pt"].aliases] == ["last.pt"]


def test_the_newest_save_waits_for_the_alias_that_is_being_written(tmp_path: Path) -> None:
    """Shipped without its last.pt, a new pod would have nothing to call the last one."""
    for step in (1, 2):
        torch_like(tmp_path / f"step_{step}.pt", pickle.dumps({"step": step, "optimizer": {}}, 2))
    (tmp_path / "last.pt").write_bytes(b"PK\x03\x04 half")
    busy = Writers(open_paths=frozenset({"last.pt"}))
    found = judged(tmp_path, writers=busy, quiet_for=9.0)
    assert found["step_1.pt"][1].status is Status.VERIFIED
    assert found["step_2.pt"][1].status is Status.WRITING
    assert "last.pt" in found["step_2.pt"][1].message
    done = judged(tmp_path, writers=Writers(open_paths=frozenset()), quiet_for=9.0)
    assert done["step_2.pt"][1].status is Status.VERIFIED


def test_json_states_by_include(tmp_path: Path) -> None:
    (tmp_path / "state_000050.json").write_text('{"step": 50, "weight": 0.5}')
    (tmp_path / "state_000100.json").write_text('{"step": 100, "weight"')
    closed = Writers(open_paths=frozenset())
    found = judged(tmp_path, include=["state_*.json"], writers=closed)
    assert {key: save.step for key, (save, _) in found.items()} == {
        "state_000050.json": 50,
        "state_000100.json": 100,
    }
    assert found["state_000100.json"][1].status is Status.WRITING
    quiet = judged(tmp_path, include=["state_*.json"], writers=closed, quiet_for=2.0)
    assert quiet["state_000050.json"][1].candidate
    unsure = judged(tmp_path, include=["state_*.json"], writers=Writers(), quiet_for=2.0)
    assert unsure["state_000050.json"][1].candidate, "another save followed it"
    (tmp_path / "state_000100.json").unlink()
    alone = judged(tmp_path, include=["state_*.json"], writers=Writers(), quiet_for=2.0)
    assert not alone["state_000050.json"][1].candidate
    assert alone["state_000050.json"][1].reason is Reason.NOT_CLOSED
    (tmp_path / "state_000100.json").write_text('{"step": 100, "weight"')
    ended = judged(tmp_path, include=["state_*.json"])
    assert ended["state_000050.json"][1].status is Status.SETTLED
    assert ended["state_000050.json"][1].candidate
    assert ended["state_000100.json"][1].status is Status.TORN


def test_a_generic_save_may_have_its_step_in_its_content(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"step": 12, "loss": 0.5}')
    save, verdict = judged(tmp_path, include=["state.json"])["state.json"]
    assert (save.step, save.loss, save.reused_path) == (12, 0.5, True)
    assert verdict.status is Status.SETTLED


def test_an_unknown_layout_names_those_that_exist() -> None:
    with pytest.raises(UnknownLayoutError, match="hf-trainer"):
        layouts_for(layout="pickle")


def test_many_small_files_are_tolerable(tmp_path: Path) -> None:
    directory = tmp_path / "step_1"
    directory.mkdir()
    for number in range(3000):
        (directory / f"f{number}.npy").write_bytes(b"x")
    torch_like(directory / "model.pt")
    (save,) = snapshot_of(tmp_path).saves
    assert len(save.files) == 3001
