"""Saves are copied while processes write over them, are killed in the middle, or take them away:
what is pinned stays what was judged, and a mix of two saves is never taken for one."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.checkpoint_looks import judged
from kit.handmade import age, dcp_directory, torch_bytes, torch_file
from kit.handmade_others import keras_backup, keras_weights
from kit.handmade_sharded import deepspeed_tag
from rtj_sidecar.checkpoints.pin_choice import InodeHistory, PinHow, how_to_pin
from rtj_sidecar.checkpoints.pins import Pin, files_dir, pin_entries, pin_save
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import Expectations, Reason, Status
from rtj_sidecar.directory import Directory
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.pinning import pin_found

_HUGE = 700 << 30


def killed(write: Callable[[], None]) -> None:
    """Run it in a process that is killed right after it."""

    def do() -> None:
        write()
        os.kill(os.getpid(), signal.SIGKILL)

    child = multiprocessing.get_context("fork").Process(target=do)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL


def pinned(root: Path, key: str) -> tuple[Pin, dict[str, PinHow]]:
    save, verdict = judged(root)[key]
    assert verdict.candidate, verdict.message
    how = how_to_pin(save=save, history=InodeHistory())
    return pin_save(reader=Reader(root), save=save, pin_id="p", how=how), how


def over(path: Path, content: bytes) -> None:
    """As torch.save, h5py and DCP do: the same inode, cut to nothing and filled again."""
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(content)


def bytes_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_dcp_into_the_same_directory_killed_between_two_ranks(tmp_path: Path) -> None:
    root, other = tmp_path / "run", tmp_path / "next"
    keys = {"model.w": None, "optim.m": None}
    dcp_directory(root / "state", keys)
    dcp_directory(other / "state", keys, save_id="b")
    age(root)
    before = bytes_of(root)
    pin, how = pinned(root, "state")
    assert set(how.values()) == {PinHow.COPY}
    fresh = (other / "state" / "__0_0.distcp").read_bytes()
    killed(lambda: over(root / "state" / "__0_0.distcp", fresh))
    verdict = judged(root)["state"][1]
    # Sizes, checksums and places all fit: only the time tells.
    assert (verdict.status, verdict.reason) == (Status.TORN, Reason.MIXED_GENERATIONS)
    assert pin_entries(root, pin) is not None
    assert bytes_of(files_dir(root, "p")) == before


@pytest.mark.parametrize("whole", [True, False])
def test_kerass_backup_killed_before_its_count(whole: bool, tmp_path: Path) -> None:
    root, other = tmp_path / "run", tmp_path / "next.weights.h5"
    keras_backup(root, epoch=4)
    age(root)
    before = bytes_of(root)
    pin, how = pinned(root, "latest.weights.h5")
    assert set(how.values()) == {PinHow.COPY}
    keras_weights(other, step=5)
    content = other.read_bytes()
    killed(
        lambda: over(root / "latest.weights.h5", content if whole else content[: len(content) // 2])
    )
    verdict = judged(root)["latest.weights.h5"][1]
    reason = Reason.MIXED_GENERATIONS if whole else Reason.TRUNCATED
    assert (verdict.status, verdict.reason) == (Status.TORN, reason), verdict.message
    assert pin_entries(root, pin) is not None
    assert bytes_of(files_dir(root, "p")) == before


def test_torch_save_over_the_same_name_is_killed(tmp_path: Path) -> None:
    root = tmp_path / "run"
    torch_file(root / "ckpt.pt", {"step": 4, "optimizer": {}})
    before = bytes_of(root)
    pin, how = pinned(root, "ckpt.pt")
    assert set(how.values()) == {PinHow.COPY}
    content = torch_bytes({"step": 5, "optimizer": {}}, name="ckpt")
    killed(lambda: over(root / "ckpt.pt", content[:1500]))
    assert judged(root)["ckpt.pt"][1].reason is Reason.TRUNCATED
    assert pin_entries(root, pin) is not None
    assert bytes_of(files_dir(root, "p")) == before


def test_a_rotation_while_the_pin_is_sent(tmp_path: Path) -> None:
    root = tmp_path / "run"
    deepspeed_tag(root / "global_step4", step=4, stage=2)
    (root / "latest").write_text("global_step4")
    before = bytes_of(root / "global_step4")
    pin, how = pinned(root, "global_step4")
    assert set(how.values()) == {PinHow.LINK}

    def rotate() -> None:
        deepspeed_tag(root / "global_step5", step=5, stage=2)
        over(root / "latest", b"global_step5")
        for path in (root / "global_step4").iterdir():
            path.unlink()
        (root / "global_step4").rmdir()

    killed(rotate)
    assert pin_entries(root, pin) is not None
    assert bytes_of(files_dir(root, "p") / "global_step4") == before
    assert judged(root)["global_step5"][1].status is Status.VERIFIED


def sparse_safetensors(path: Path, *, size: int) -> None:
    count = size // 4
    header = {"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 4 * count)


def test_a_huge_sparse_save_is_judged_and_linked_at_once(tmp_path: Path) -> None:
    sparse_safetensors(tmp_path / "step_10" / "model.safetensors", size=_HUGE)
    pin, how = pinned(tmp_path, "step_10")
    assert set(how.values()) == {PinHow.LINK}
    assert sum(file.stamp.size for file in pin.files) > _HUGE
    assert os.statvfs(tmp_path).f_bavail > 0


def test_a_huge_save_is_never_copied_beyond_the_room(tmp_path: Path) -> None:
    path = "step_10/model.safetensors"
    sparse_safetensors(tmp_path / path, size=_HUGE)
    directory = Directory(tmp_path, run_id="r", layout="auto", include=(), expect=Expectations())
    directory.load()
    ((save, verdict),) = directory.look(writers=Writers(gone=True)).judged
    directory.sight.history = InodeHistory(in_place=frozenset({path}))
    with pytest.raises(DirectoryProblem, match="bytes free"):
        pin_found(directory, save, verdict=verdict, attempt=1, since=0.0)
    assert not list((tmp_path / ".rtj").rglob("*.safetensors"))
