"""Verdicts on distributed checkpoints (DCP): every way in which one is not whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kit.checkpoint_looks import judged
from kit.checkpoint_verdicts import Fresh, expect_torn, look
from rtj_sidecar.checkpoints.layouts.dcp import DcpLayout
from rtj_sidecar.checkpoints.types import Expectations, PartFiles, Reason, Status


def test_dcp_without_its_metadata_did_not_finish(fresh: Fresh) -> None:
    root = fresh("dcp")
    (root / "step-2" / ".metadata").unlink()
    expect_torn(root, "step-2", Reason.MARKER_MISSING, "step-2/.metadata")
    assert look(root)["step-1"][1].status is Status.VERIFIED


def test_dcp_with_a_missing_short_or_changed_shard(fresh: Fresh) -> None:
    root = fresh("dcp")
    shard = root / "step-2" / "__1_0.distcp"
    whole, times = shard.read_bytes(), (shard.stat().st_atime_ns, shard.stat().st_mtime_ns)

    def write(content: bytes) -> None:
        shard.write_bytes(content)
        os.utime(shard, ns=times)

    write(whole[: 1261 + 2601])  # cut exactly between two archives: the chain alone looks whole
    expect_torn(root, "step-2", Reason.TRUNCATED, "step-2/__1_0.distcp", ".metadata says")
    flipped = bytearray(whole)
    flipped[2000] ^= 0xFF
    write(bytes(flipped))
    expect_torn(root, "step-2", Reason.CHECKSUM_MISMATCH, "step-2/__1_0.distcp")
    shard.unlink()
    expect_torn(root, "step-2", Reason.FILES_MISSING, "step-2/__1_0.distcp")


def test_dcp_shard_of_another_save_under_the_old_metadata(fresh: Fresh, originals: Path) -> None:
    """Killed after rank 0 wrote and before rank 1 did: loads without an error, as a mix."""
    root = fresh("dcp-reused")
    newer = originals / "dcp-reused-next" / "state" / "__0_0.distcp"
    shutil.copy(newer, root / "state" / "__0_0.distcp")  # its time is now, as after a real write
    expect_torn(root, "state", Reason.MIXED_GENERATIONS, "__0_0.distcp", "touch")


def test_dcp_swapped_rank_shards(fresh: Fresh) -> None:
    root = fresh("dcp")
    first, second = root / "step-1" / "__0_0.distcp", root / "step-1" / "__1_0.distcp"
    one, two = first.read_bytes(), second.read_bytes()
    for path, content in ((first, two), (second, one)):
        times = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    expect_torn(root, "step-1", Reason.MIXED_GENERATIONS, "step-1/__0_0.distcp")


def test_dcp_ignores_shards_left_by_a_larger_world(fresh: Fresh) -> None:
    root = fresh("dcp")
    shutil.copy2(root / "step-1" / "__1_0.distcp", root / "step-1" / "__7_0.distcp")
    save, verdict = look(root)["step-1"]
    assert verdict.status is Status.VERIFIED
    assert "step-1/__7_0.distcp" not in {entry.path for entry in save.files}


def test_dcp_of_one_pod_among_several_is_judged_as_a_part(fresh: Fresh) -> None:
    """On a disk of its own a rank has its shard only: whole in itself, complete in the union."""
    root, other = fresh("dcp"), fresh("dcp-reused")
    shutil.rmtree(other / "state")
    (other / "step-2").mkdir()
    (root / "step-2" / "__1_0.distcp").rename(other / "step-2" / "__1_0.distcp")
    part = Expectations(world_size=2, whole=False)
    first, second = judged(root, expect=part)["step-2"], judged(other, expect=part)["step-2"]
    assert first[1].status is Status.VERIFIED
    assert second[1].status is Status.VERIFIED
    parts = [
        PartFiles(rank, {e.path: e.size for e in save.files}, verdict.facts)
        for rank, (save, verdict) in enumerate((first, second))
    ]
    assert DcpLayout().union_gate(parts=parts, expect=part).passed is True
    missing = DcpLayout().union_gate(parts=parts[:1], expect=part)
    assert (missing.passed, missing.reason) == (False, Reason.FILES_MISSING)
    markerless = DcpLayout().union_gate(parts=parts[1:], expect=part)
    assert (markerless.passed, markerless.reason) == (False, Reason.MARKER_MISSING)
    (root / "step-2" / ".metadata").unlink()
    unfinished = judged(root, expect=part)["step-2"][1]
    assert (unfinished.status, unfinished.reason) == (Status.TORN, Reason.MARKER_MISSING)
    (other / "step-2" / "__1_0.distcp").write_bytes(b"PK\x03\x04 cut off")
    assert judged(other, expect=part)["step-2"][1].status is Status.TORN


def test_dcp_with_broken_metadata(fresh: Fresh) -> None:
    root = fresh("dcp")
    marker = root / "step-2" / ".metadata"
    marker.write_bytes(marker.read_bytes()[:500])
    expect_torn(root, "step-2", Reason.MARKER_INVALID, "step-2/.metadata")


def test_dcp_written_right_into_the_checkpoint_directory(originals: Path, tmp_path: Path) -> None:
    shutil.copytree(originals / "dcp-reused" / "state", tmp_path / "flat")
    (tmp_path / "flat" / "args.json").write_text("{}")
    save, verdict = judged(tmp_path / "flat")["."]
    assert (save.step, verdict.status) == (1, Status.VERIFIED)
    assert {entry.path for entry in save.files} == {".metadata", "__0_0.distcp", "__1_0.distcp"}
