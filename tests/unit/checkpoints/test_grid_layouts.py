"""Megatron, NeMo, DCP's HF writer, NVRx and DLRover: whole saves are Verified, damaged ones refused
for the right reason. The trees are made by hand; `tests/frameworks` tries the real libraries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kit.checkpoint_looks import judged, snapshot_of
from kit.damage import Damage, both, cut, emptied, hole, lost, renamed, written
from kit.handmade import age, dcp_directory, torch_file
from kit.handmade_grid import (
    dcp_hf,
    dlrover,
    megatron_dist,
    megatron_legacy,
    nemo_one,
    nemo_two,
    nvrx,
)
from rtj_sidecar.checkpoints.layouts import layout_named
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FoundSave,
    Gate,
    PartFiles,
    Reason,
    Status,
)

Build = Callable[[Path], None]
TWO = Expectations(world_size=2)
NEMO = "gpt--val_loss=7.63-step=7-consumed_samples=80.0"
FIRST = f"tp_rank_00_pp_rank_000/{NEMO}-last.ckpt"
LEGACY = "iter_0000007"


def at(key: str, build: Callable[..., None], **options: object) -> Build:
    return lambda root: build(root / key, **options)


SAVES: dict[str, tuple[str, str, Build]] = {
    "dist": ("megatron", LEGACY, at(LEGACY, megatron_dist, step=7)),
    "legacy": ("megatron", LEGACY, at(LEGACY, megatron_legacy, step=7)),
    "legacy-pp": ("megatron", LEGACY, at(LEGACY, megatron_legacy, step=7, pipeline=2)),
    "legacy-ep": (
        "megatron", LEGACY, at(LEGACY, megatron_legacy, step=7, expert=2, distributed=False)
    ),
    "fsdp-dtensor": (
        "megatron", LEGACY, at(LEGACY, dcp_directory, keys={"model.w": None, "optimizer.w": None})
    ),
    "nemo2": ("nemo", f"{NEMO}-last", at(f"{NEMO}-last", nemo_two)),
    "nemo2-default": ("nemo", "step_7", at("step_7", nemo_two)),
    "nemo1-dist": ("nemo", f"{NEMO}-last", at(f"{NEMO}-last", megatron_dist, step=7)),
    "nemo1": ("nemo", FIRST, at(f"{NEMO}-last", nemo_one)),
    "dcp-hf": ("dcp-hf", "step-7", at("step-7", dcp_hf)),
    "nvrx": ("nvrx-local", "run/0/iter_0000007_0_local.pt", partial(nvrx, step=7)),
    "dlrover": ("dlrover", "7", partial(dlrover, step=7, ranks=2)),
}  # fmt: skip


def made(root: Path, name: str) -> str:
    SAVES[name][2](root)
    age(root)
    return SAVES[name][1]


@pytest.mark.parametrize("name", SAVES)
def test_a_whole_save_is_verified_by_its_own_layout(name: str, tmp_path: Path) -> None:
    key = made(tmp_path, name)
    found = judged(tmp_path, expect=TWO)
    assert list(found) == [key]
    save, verdict = found[key]
    assert (save.layout, save.step) == (SAVES[name][0], 7)
    assert save.full_state is {"dcp-hf": False, "nvrx": None}.get(name, True)
    assert (verdict.status, verdict.candidate) == (Status.VERIFIED, True), verdict.message
    paths = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {entry.path for entry in save.files} == paths - {"dlrover_latest.txt"}


NVRX = "run/1/iter_0000007_1_local"
DAMAGES: list[tuple[str, Damage, Reason]] = [
    ("dist", lost(f"{LEGACY}/metadata.json"), Reason.MARKER_MISSING),
    ("dist", emptied(f"{LEGACY}/metadata.json"), Reason.MARKER_INVALID),
    ("dist", lost(f"{LEGACY}/.metadata", f"{LEGACY}/metadata.json"), Reason.MARKER_MISSING),
    ("dist", lost(f"{LEGACY}/.metadata"), Reason.MARKER_MISSING),
    ("dist", lost(f"{LEGACY}/common.pt"), Reason.FILES_MISSING),
    ("dist", cut(f"{LEGACY}/common.pt"), Reason.TRUNCATED),
    ("dist", lost(f"{LEGACY}/__1_0.distcp"), Reason.FILES_MISSING),
    ("dist", hole(f"{LEGACY}/__0_0.distcp", at=0.17), Reason.CHECKSUM_MISMATCH),
    ("fsdp-dtensor", lost(f"{LEGACY}/.metadata"), Reason.MARKER_MISSING),
    ("legacy", lost(f"{LEGACY}/mp_rank_01"), Reason.FILES_MISSING),
    ("legacy", lost(f"{LEGACY}/mp_rank_00"), Reason.FILES_MISSING),
    ("legacy", lost(f"{LEGACY}/mp_rank_01/distrib_optim.pt"), Reason.FILES_MISSING),
    (
        "legacy",
        lost(f"{LEGACY}/mp_rank_00/distrib_optim.pt", f"{LEGACY}/mp_rank_01/distrib_optim.pt"),
        Reason.FILES_MISSING,
    ),
    ("legacy", cut(f"{LEGACY}/mp_rank_01/model_optim_rng.pt"), Reason.TRUNCATED),
    ("legacy-pp", lost(f"{LEGACY}/mp_rank_01_001"), Reason.FILES_MISSING),
    ("legacy-ep", lost(f"{LEGACY}/mp_rank_00_001"), Reason.FILES_MISSING),
    ("nemo2", written(f"{NEMO}-last-unfinished", ""), Reason.MARKER_MISSING),
    ("nemo2", lost(f"{NEMO}-last/weights/metadata.json"), Reason.MARKER_MISSING),
    ("nemo2", lost(f"{NEMO}-last/weights/__1_0.distcp"), Reason.FILES_MISSING),
    ("nemo2-default", written("step_7-unfinished", ""), Reason.MARKER_MISSING),
    ("nemo1-dist", written(f"{NEMO}-last-unfinished", ""), Reason.MARKER_MISSING),
    ("nemo1", written(f"{NEMO}-last-unfinished", ""), Reason.MARKER_MISSING),
    ("nemo1", cut(FIRST), Reason.TRUNCATED),
    ("dcp-hf", lost("step-7/model.safetensors.index.json"), Reason.MARKER_MISSING),
    ("dcp-hf", lost("step-7/model-00001-of-00001.safetensors"), Reason.FILES_MISSING),
    ("dcp-hf", cut("step-7/model-00001-of-00001.safetensors"), Reason.TRUNCATED),
    (
        "dcp-hf",
        lost("step-7/sharded/shard-00001-model-00001-of-00001.safetensors"),
        Reason.FILES_MISSING,
    ),
    ("nvrx", renamed(f"{NVRX}.pt", f"{NVRX}.dirty.pt"), Reason.MARKER_MISSING),
    ("nvrx", lost(f"{NVRX}.pt"), Reason.FILES_MISSING),
    ("nvrx", cut(f"{NVRX}.pt"), Reason.TRUNCATED),
    ("dlrover", written("dlrover_latest.txt", "6"), Reason.MARKER_MISSING),
    ("dlrover", cut("7/rank_1.pt"), Reason.TRUNCATED),
    ("dlrover", lost("7/rank_1.pt"), Reason.FILES_MISSING),
]


@pytest.mark.parametrize(("name", "damage", "reason"), DAMAGES)
def test_a_damaged_save_is_refused(
    name: str, damage: Damage, reason: Reason, tmp_path: Path
) -> None:
    key = made(tmp_path, name)
    damage(tmp_path)
    _, verdict = judged(tmp_path, expect=TWO)[key]
    assert (verdict.status, verdict.reason) == (Status.TORN, reason), verdict.message


@pytest.mark.parametrize(
    ("name", "path", "kind", "value"),
    [
        ("dist", "latest_checkpointed_iteration.txt", "text", "7"),
        ("legacy", "latest_checkpointed_iteration.txt", "text", "7"),
        ("dlrover", "dlrover_latest.txt", "text", "7"),
        ("nemo2-default", "step_7-last", "link", "step_7"),
    ],
)
def test_what_the_framework_resumes_by_is_stated(
    name: str, path: str, kind: str, value: str, tmp_path: Path
) -> None:
    key = made(tmp_path, name)
    save, _ = judged(tmp_path, expect=TWO)[key]
    assert save.facts["rebuild"] == [{"path": path, "kind": kind, "value": value}]


def test_the_tracker_of_megatron_is_a_hint(tmp_path: Path) -> None:
    for text in ("", "9", "garbage"):
        (tmp_path / "run").mkdir(exist_ok=True)
        megatron_dist(tmp_path / "run" / LEGACY, step=7)
        (tmp_path / "run" / "latest_checkpointed_iteration.txt").write_text(text)
        age(tmp_path)
        assert judged(tmp_path, expect=TWO)[f"run/{LEGACY}"][1].status is Status.VERIFIED


def test_facts_of_megatron_come_from_its_arguments(tmp_path: Path) -> None:
    key = made(tmp_path, "dist")
    facts = judged(tmp_path)[key][0].facts
    assert (facts["samples"], facts["world_size"]) == (80, 2)
    assert facts["has"] == {"scheduler": True, "rng": True, "loader": True, "optimizer": True}


def test_nemos_marker_that_goes_makes_another_generation(tmp_path: Path) -> None:
    key = made(tmp_path, "nemo2")
    marker = tmp_path / f"{NEMO}-last-unfinished"
    marker.touch()
    before = judged(tmp_path)[key][0]
    marker.unlink()
    save, verdict = judged(tmp_path)[key]
    assert save.fingerprint != before.fingerprint
    assert (verdict.status, save.loss) == (Status.VERIFIED, 7.63)


def test_a_save_of_dlrover_with_done_files_or_in_the_stage_was_not_committed(
    tmp_path: Path,
) -> None:
    for step in (7, 8):
        dlrover(tmp_path, step=step)
    stage = tmp_path / "._dlrover_ckpt_stage"
    (stage / "8.done").mkdir(parents=True)
    (stage / "8.done" / "0").write_text("done")
    torch_file(stage / "9" / "rank_0.pt", {"step": 9})
    age(tmp_path)
    found = judged(tmp_path)
    told = {key: verdict.reason for key, (_, verdict) in found.items()}
    assert told == {
        "7": Reason.OK,
        "8": Reason.MARKER_MISSING,
        "._dlrover_ckpt_stage/9": Reason.MARKER_MISSING,
    }


@pytest.mark.parametrize("text", ["", "\n", "\0\0", "step"])
def test_a_tracker_of_dlrover_without_a_step_leaves_the_word_to_the_listing(
    text: str, tmp_path: Path
) -> None:
    for step in (7, 8):
        dlrover(tmp_path, step=step, ranks=2)
    stage = tmp_path / "._dlrover_ckpt_stage" / "8.done"
    stage.mkdir(parents=True)
    (stage / "0").write_text("done")
    (tmp_path / "dlrover_latest.txt").write_text(text)
    age(tmp_path)
    found = judged(tmp_path, expect=TWO)
    assert {key: verdict.reason for key, (_, verdict) in found.items()} == {
        "7": Reason.OK,
        "8": Reason.MARKER_MISSING,
    }
    save, verdict = found["7"]
    assert (verdict.status, verdict.candidate) == (Status.VERIFIED, True)
    assert "dlrover_latest.txt has no step in it" in next(
        gate.detail for gate in verdict.gates if gate.name is Gate.MARKER
    )
    told = save.facts["rebuild"]
    assert isinstance(told, list)
    assert told[-1]["value"] == "7", "a restore writes it anew"


def test_without_any_tracker_nothing_of_dlrover_was_committed(tmp_path: Path) -> None:
    dlrover(tmp_path, step=7)
    (tmp_path / "dlrover_latest.txt").unlink()
    (tmp_path / "._dlrover_ckpt_stage" / "9").mkdir(parents=True)
    torch_file(tmp_path / "._dlrover_ckpt_stage" / "9" / "rank_0.pt", {"step": 9})
    age(tmp_path)
    verdict = judged(tmp_path)["7"][1]
    assert (verdict.status, verdict.reason) == (Status.TORN, Reason.MARKER_MISSING)


def test_dlrover_over_megatron_states_both_trackers(tmp_path: Path) -> None:
    made(tmp_path, "dist")
    (tmp_path / "dlrover_latest.txt").write_text("7")
    save, verdict = judged(tmp_path, expect=TWO)[LEGACY]
    assert (save.layout, verdict.status) == ("dlrover", Status.VERIFIED)
    told = save.facts["rebuild"]
    assert isinstance(told, list)
    paths = [pointer["path"] for pointer in told]
    assert paths == ["latest_checkpointed_iteration.txt", "dlrover_latest.txt"]


def test_a_replica_stands_for_a_rank_that_is_lost(tmp_path: Path) -> None:
    key = made(tmp_path, "nvrx")
    torch_file(tmp_path / "run/0/iter_0000007_1_local.pt", {"a": 1})
    lost("run/1/iter_0000007_1_local.pt")(tmp_path)
    age(tmp_path)
    assert judged(tmp_path, expect=TWO)[key][1].status is Status.VERIFIED


def test_shards_without_consolidation_have_no_marker(tmp_path: Path) -> None:
    key = made(tmp_path, "dcp-hf")
    for name in ("model.safetensors.index.json", "model-00001-of-00001.safetensors"):
        (tmp_path / key / name).unlink()
    for shard in (tmp_path / key / "sharded").iterdir():
        shard.rename(tmp_path / key / shard.name)
    (tmp_path / key / "sharded").rmdir()
    age(tmp_path)
    assert judged(tmp_path, expect=TWO)[key][1].status is Status.VERIFIED
    (tmp_path / key / "shard-00002-model-00001-of-00001.safetensors").unlink()
    assert judged(tmp_path, expect=TWO)[key][1].reason is Reason.FILES_MISSING


@pytest.mark.parametrize(
    ("name", "of_one", "mark"),
    [
        ("dist", "__1_", "__1_"),
        ("dist", "__1_", "metadata.json"),
        ("legacy", "mp_rank_01", "mp_rank_01/distrib"),
        ("nemo2", "__1_", "weights/__1_"),
        ("nemo2", "__1_", "weights/metadata.json"),
        ("dcp-hf", "shard-00002", "shard-00002"),
        ("nvrx", "_1_local", "_1_local"),
    ],
)
def test_the_union_of_pods_with_own_disks(
    name: str, of_one: str, mark: str, tmp_path: Path
) -> None:
    made(tmp_path / "whole", name)
    parts: list[PartFiles] = []
    for rank in (0, 1):
        disk = tmp_path / str(rank)
        for path in [p for p in (tmp_path / "whole").rglob("*") if p.is_file()]:
            relative = path.relative_to(tmp_path / "whole")
            if (of_one in str(relative)) == bool(rank):
                (disk / relative).parent.mkdir(parents=True, exist_ok=True)
                (disk / relative).write_bytes(path.read_bytes())
        expect = Expectations(world_size=2, whole=False)
        ((save, verdict),) = judged(disk, expect=expect).values()
        assert verdict.status is not Status.TORN, verdict.message
        files = {entry.path: entry.size for entry in save.files}
        parts.append(PartFiles(rank=rank, files=files, facts=verdict.facts))
    rules = layout_named(SAVES[name][0])
    assert rules is not None
    assert rules.union_gate(parts=parts, expect=TWO).passed is True
    short = [
        PartFiles(
            rank=part.rank,
            files={p: s for p, s in part.files.items() if mark not in p},
            facts=part.facts,
        )
        for part in parts
    ]
    assert rules.union_gate(parts=short, expect=TWO).passed is False


def test_layouts_leave_what_is_not_theirs(tmp_path: Path) -> None:
    """A directory named like Megatron's without its files, `weights/` and `context/` of anyone."""
    torch_file(tmp_path / "iter_0000003" / "net.pt", {"step": 3})
    torch_file(tmp_path / "step_4" / "weights" / "net.pt", {"step": 4})
    (tmp_path / "step_4" / "context").mkdir()
    (tmp_path / "step_4" / "context" / "notes.txt").write_text("x")
    found: dict[str, FoundSave] = {s.root_key: s for s in snapshot_of(tmp_path).saves}
    assert {key: save.layout for key, save in found.items()} == {
        "iter_0000003": "torch",
        "step_4": "torch",
    }


def test_a_marker_and_a_torn_shard_together(tmp_path: Path) -> None:
    key = made(tmp_path, "nemo2")
    both(written(f"{NEMO}-last-unfinished", ""), cut(f"{key}/weights/__0_0.distcp"))(tmp_path)
    assert judged(tmp_path)[key][1].reason is Reason.MARKER_MISSING
