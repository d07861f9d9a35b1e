"""Accelerate, DeepSpeed and the Trainer with either: whole saves are Verified, damaged ones refused
for the right reason. The trees are made by hand; `tests/frameworks` tries the real libraries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kit.checkpoint_looks import judged, snapshot_of
from kit.damage import Damage, cut, emptied, hole, lost, written
from kit.handmade import age, safetensors_file, torch_file
from kit.handmade_sharded import accelerate, accelerate_fsdp, deepspeed_tag, hf_trainer
from rtj_sidecar.checkpoints.layouts import layout_named
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FoundSave,
    PartFiles,
    Reason,
    Status,
    Verdict,
)

Build = Callable[[Path], None]
TWO = Expectations(world_size=2)

SAVES: dict[str, tuple[str, str, int, Build]] = {
    "acc": ("accelerate", "step_7", 7, partial(accelerate, ranks=2)),
    "acc-fsdp": ("accelerate", "step_7", 7, accelerate_fsdp),
    "acc-own": (
        "accelerate", "checkpoints/checkpoint_7", 30, partial(accelerate, ranks=2, step=30)
    ),
    "hf": ("hf-trainer", "checkpoint-7", 7, partial(hf_trainer, step=7, ranks=2)),
    **{
        f"hf-{kind}": (
            "hf-trainer", "checkpoint-7", 7, partial(hf_trainer, step=7, ranks=2, kind=kind)
        )
        for kind in ("peft", "adapters", "deepspeed", "fsdp", "fsdp-full", "fsdp-ranks")
    },
    **{
        f"ds{stage}": (
            "deepspeed", "global_step7", 7, partial(deepspeed_tag, step=7, stage=stage)
        )
        for stage in range(4)
    },
    "ds-grid": ("deepspeed", "global_step7", 7, partial(deepspeed_tag, step=7, stage=1, model=2)),
}  # fmt: skip


def made(root: Path, name: str) -> tuple[Path, str]:
    _, key, _, build = SAVES[name]
    build(root / key)
    age(root)
    return root / key, key


def verdict_of(root: Path, key: str, expect: Expectations = TWO) -> tuple[FoundSave, Verdict]:
    return judged(root, expect=expect)[key]


@pytest.mark.parametrize("name", SAVES)
def test_a_whole_save_is_verified_by_its_own_layout(name: str, tmp_path: Path) -> None:
    layout, key, step, _ = SAVES[name]
    made(tmp_path, name)
    found = judged(tmp_path, expect=TWO)
    assert list(found) == [key]
    save, verdict = found[key]
    assert (save.layout, save.step, save.full_state) == (layout, step, True)
    assert (verdict.status, verdict.candidate) == (Status.VERIFIED, True), verdict.message
    has = save.facts["has"]
    assert isinstance(has, dict)
    assert (has["optimizer"], has["scheduler"]) == (True, True)
    paths = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {entry.path for entry in save.files} == paths


DAMAGES: list[tuple[str, Damage, Reason]] = [
    ("acc", lost("random_states_0.pkl"), Reason.MARKER_MISSING),
    ("acc", lost("random_states_1.pkl"), Reason.FILES_MISSING),
    ("acc", lost("random_states_0.pkl", "scheduler.bin"), Reason.MARKER_MISSING),
    ("acc", cut("optimizer.bin"), Reason.TRUNCATED),
    ("acc", hole("optimizer.bin"), Reason.CHECKSUM_MISMATCH),
    ("acc", cut("model.safetensors"), Reason.TRUNCATED),
    ("acc", emptied("scheduler.bin"), Reason.TRUNCATED),
    ("acc", cut("random_states_0.pkl"), Reason.TRUNCATED),
    ("acc-own", lost("random_states_0.pkl", "random_states_1.pkl"), Reason.MARKER_MISSING),
    ("acc-fsdp", lost("optimizer_0/.metadata"), Reason.MARKER_MISSING),
    ("acc-fsdp", lost("optimizer_0/__1_0.distcp"), Reason.FILES_MISSING),
    ("acc-fsdp", hole("pytorch_model_fsdp_0/__0_0.distcp", at=0.35), Reason.CHECKSUM_MISMATCH),
    ("hf", lost("trainer_state.json"), Reason.MARKER_MISSING),
    ("hf", lost("rng_state_1.pth"), Reason.FILES_MISSING),
    ("hf-peft", lost("adapter_config.json"), Reason.FILES_MISSING),
    ("hf-peft", lost("adapter_model.safetensors"), Reason.FILES_MISSING),
    ("hf-adapters", lost("two/adapter_config.json"), Reason.FILES_MISSING),
    ("hf-deepspeed", lost("trainer_state.json"), Reason.MARKER_MISSING),
    ("hf-deepspeed", lost("global_step7/mp_rank_00_model_states.pt"), Reason.FILES_MISSING),
    ("hf-deepspeed", lost("global_step7"), Reason.FILES_MISSING),
    (
        "hf-deepspeed",
        lost("global_step7/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        Reason.FILES_MISSING,
    ),
    (
        "hf-deepspeed",
        hole("global_step7/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        Reason.CHECKSUM_MISMATCH,
    ),
    ("hf-fsdp", lost("optimizer_0"), Reason.FILES_MISSING),
    ("hf-fsdp", lost("optimizer_0/.metadata"), Reason.MARKER_MISSING),
    ("hf-fsdp", lost("pytorch_model_fsdp_0/__1_0.distcp"), Reason.FILES_MISSING),
    ("hf-fsdp", lost("scheduler.pt"), Reason.FILES_MISSING),
    ("hf-fsdp-full", lost("optimizer.bin"), Reason.FILES_MISSING),
    ("hf-fsdp-full", cut("pytorch_model_fsdp.bin"), Reason.TRUNCATED),
    ("hf-fsdp-ranks", lost("pytorch_model_fsdp_0_rank1.bin"), Reason.FILES_MISSING),
    ("hf-fsdp-ranks", lost("optimizer_0_rank0.bin"), Reason.FILES_MISSING),
    ("ds0", cut("mp_rank_00_model_states.pt"), Reason.TRUNCATED),
    ("ds1", lost("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"), Reason.FILES_MISSING),
    ("ds1", lost("mp_rank_00_model_states.pt"), Reason.FILES_MISSING),
    ("ds2", lost("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"), Reason.FILES_MISSING),
    ("ds2", emptied("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"), Reason.TRUNCATED),
    ("ds3", lost("zero_pp_rank_1_mp_rank_00_model_states.pt"), Reason.FILES_MISSING),
    ("ds3", hole("zero_pp_rank_0_mp_rank_00_model_states.pt", at=0.6), Reason.CHECKSUM_MISMATCH),
    ("ds-grid", lost("mp_rank_01_model_states.pt"), Reason.FILES_MISSING),
    ("ds-grid", lost("bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt"), Reason.FILES_MISSING),
]


@pytest.mark.parametrize(("name", "damage", "reason"), DAMAGES)
def test_a_damaged_save_is_refused(
    name: str, damage: Damage, reason: Reason, tmp_path: Path
) -> None:
    place, key = made(tmp_path, name)
    damage(place)
    _, verdict = verdict_of(tmp_path, key)
    assert (verdict.status, verdict.reason) == (Status.TORN, reason), verdict.message


def test_an_early_killed_accelerate_save_is_known_by_its_siblings(tmp_path: Path) -> None:
    accelerate(tmp_path / "checkpoint-500")
    safetensors_file(tmp_path / "checkpoint-1000" / "model.safetensors", "weight")
    age(tmp_path)
    found = judged(tmp_path)
    assert found["checkpoint-500"][1].status is Status.VERIFIED
    save, verdict = found["checkpoint-1000"]
    assert (save.layout, verdict.reason) == ("accelerate", Reason.MARKER_MISSING)


def test_a_lost_custom_object_is_told_by_the_saves_before(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        accelerate(tmp_path / f"step_{step}", step=step)
    age(tmp_path)
    (tmp_path / "step_3" / "custom_checkpoint_0.pkl").unlink()
    _, verdict = verdict_of(tmp_path, "step_3", Expectations())
    assert (verdict.status, verdict.reason) == (Status.TORN, Reason.FILES_MISSING)


def test_the_number_of_accelerates_own_naming_is_no_step(tmp_path: Path) -> None:
    accelerate(tmp_path / "checkpoints" / "checkpoint_3")
    save, _ = verdict_of(tmp_path, "checkpoints/checkpoint_3", Expectations())
    assert save.facts["unit"] == "number"


def test_a_users_own_optimizer_file_is_not_accelerates(tmp_path: Path) -> None:
    torch_file(tmp_path / "step_3" / "net.pt", {"weight": 0})
    torch_file(tmp_path / "step_3" / "optimizer.bin", {"state": {}, "param_groups": []})
    assert verdict_of(tmp_path, "step_3", Expectations())[0].layout == "torch"


def test_an_expert_and_a_pipeline_stage_that_are_missing(tmp_path: Path) -> None:
    tag = tmp_path / "global_step7"
    deepspeed_tag(tag, step=7, stage=0, model=2, more={"num_experts": [2]})
    for expert in (0, 1):
        for part in (0, 1):
            name = f"layer_0_expert_{expert}_mp_rank_{part:02d}_model_states.pt"
            torch_file(tag / name, {"weight": 0})
            torch_file(tag / f"layer_{expert:02d}-model_{part:02d}-model_states.pt", {"weight": 0})
    assert verdict_of(tmp_path, "global_step7")[1].status is Status.VERIFIED
    for name in (
        "layer_0_expert_1_mp_rank_01_model_states.pt",
        "layer_01-model_00-model_states.pt",
    ):
        content = (tag / name).read_bytes()
        (tag / name).unlink()
        _, verdict = verdict_of(tmp_path, "global_step7")
        assert verdict.reason is Reason.FILES_MISSING
        assert name in verdict.message
        (tag / name).write_bytes(content)


@pytest.mark.parametrize("damage", [lost("latest"), emptied("latest"), written("latest", "other")])
def test_deepspeeds_pointer_is_a_hint_and_stated_for_the_restore(
    damage: Damage, tmp_path: Path
) -> None:
    for step in (7, 8):
        deepspeed_tag(tmp_path / "run" / f"global_step{step}", step=step, stage=2)
    (tmp_path / "run" / "latest").write_text("global_step8")
    damage(tmp_path / "run")
    save, verdict = verdict_of(tmp_path, "run/global_step7")
    assert verdict.status is Status.VERIFIED
    told = {"path": "run/latest", "kind": "text", "value": "global_step7"}
    assert save.facts["rebuild"] == [told]


@pytest.mark.parametrize("damage", [lost("latest"), emptied("latest"), written("latest", "x")])
def test_the_trainers_inner_pointer_is_stated_where_it_is_missing(
    damage: Damage, tmp_path: Path
) -> None:
    place, key = made(tmp_path, "hf-deepspeed")
    assert "rebuild" not in verdict_of(tmp_path, key)[0].facts
    damage(place)
    told = {"path": "checkpoint-7/latest", "kind": "text", "value": "global_step7"}
    assert verdict_of(tmp_path, key)[0].facts["rebuild"] == [told]


def parts_of(root: Path, key: str, later: Callable[[str], bool]) -> list[PartFiles]:
    """Two ranks' parts, as two pods with disks of their own would record them."""
    parts = []
    for rank in (0, 1):
        disk = root.parent / f"{root.name}-{rank}"
        for path in [p for p in root.rglob("*") if p.is_file()]:
            relative = path.relative_to(root)
            if later(str(relative)) == bool(rank):
                (disk / relative).parent.mkdir(parents=True, exist_ok=True)
                (disk / relative).write_bytes(path.read_bytes())
        expect = Expectations(world_size=2, whole=False)
        save, verdict = judged(disk, expect=expect)[key]
        assert verdict.status is not Status.TORN, verdict.message
        files = {entry.path: entry.size for entry in save.files}
        parts.append(PartFiles(rank=rank, files=files, facts=verdict.facts))
    return parts


def of_rank_one(path: str) -> bool:
    marks = ("_rank_1_", "__1_", "random_states_1", "rng_state_1", "_rank1.")
    return any(mark in path for mark in marks)


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("acc", "random_states_1"),
        ("acc-fsdp", "optimizer_0/__1_"),
        ("hf", "rng_state_1"),
        ("hf-deepspeed", "_rank_1_"),
        ("hf-fsdp", "pytorch_model_fsdp_0/__1_"),
        ("hf-fsdp-ranks", "optimizer_0_rank1"),
        ("ds1", "_rank_1_"),
        ("ds3", "zero_pp_rank_1_mp_rank_00_model"),
    ],
)
def test_the_union_of_pods_with_own_disks(name: str, mark: str, tmp_path: Path) -> None:
    layout, key, _, build = SAVES[name]
    build(tmp_path / "whole" / key)
    age(tmp_path)
    parts = parts_of(tmp_path / "whole", key, of_rank_one)
    rules = layout_named(layout)
    assert rules is not None
    union = rules.union_gate(parts=parts, expect=TWO)
    assert union.passed is True, union.detail
    kept = {p: s for p, s in parts[1].files.items() if mark not in p}
    assert kept != dict(parts[1].files)
    short = [parts[0], PartFiles(rank=1, files=kept, facts=parts[1].facts)]
    union = rules.union_gate(parts=short, expect=TWO)
    assert (union.passed, union.reason) == (False, Reason.FILES_MISSING), union.detail


def test_half_a_rotation_is_not_taken_for_a_save(tmp_path: Path) -> None:
    """total_limit removes old directories file by file, in any order."""
    for step in (1, 2):
        accelerate(tmp_path / f"step_{step}")
    age(tmp_path)
    before = snapshot_of(tmp_path)
    (tmp_path / "step_1" / "random_states_0.pkl").unlink()
    assert snapshot_of(tmp_path, previous=before).shrinking == {"step_1"}


def test_real_saves_of_accelerate_and_the_hf_writer(originals: Path) -> None:
    """What the trees made by hand imitate, as the real libraries of this environment write it."""
    found = judged(originals / "accelerate", expect=Expectations(world_size=1))
    expected = {"checkpoints/checkpoint_0": 30, "checkpoints/checkpoint_1": 40}
    expected |= {"named/step_40": 40}
    assert {key: save.step for key, (save, _) in found.items()} == expected
    names = {path.name for path in (originals / "accelerate/checkpoints/checkpoint_0").iterdir()}
    assert names == {
        "model.safetensors",
        "optimizer.bin",
        "scheduler.bin",
        "random_states_0.pkl",
        "custom_checkpoint_0.pkl",
    }
    found |= judged(originals / "dcp-hf", expect=TWO)
    assert found["step-3"][0].layout == "dcp-hf"
    assert {verdict.status for _, verdict in found.values()} == {Status.VERIFIED}
