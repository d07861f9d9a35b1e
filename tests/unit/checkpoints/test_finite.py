"""Finite numbers, with objects of real trainers: what condemns a save, and what never does."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import checkpoint_fixtures
from rtj_sidecar.checkpoints import finite
from rtj_sidecar.checkpoints.formats import numbers
from rtj_sidecar.checkpoints.formats.base import MalformedError, Window
from rtj_sidecar.checkpoints.inspect import inspect_path
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.roles import Role, role_of
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave

SCRIPT = Path(checkpoint_fixtures.__file__).with_name("make_numbers.py")


@pytest.fixture(scope="module")
def made() -> Path:
    return checkpoint_fixtures.made_by(SCRIPT, name="numbers")


def told(run: Path) -> list[dict[str, object]]:
    """The fact `numbers` of each save of a run, oldest first."""
    reader = Reader(run)
    return [finite.numbers_of(save, reader) for save, _ in inspect_path(run)]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_only_a_new_nan_in_a_parameter_or_an_optimizer_tensor_condemns(
    made: Path, dtype: str
) -> None:
    healthy, parameter, optimizer, odd = told(made / dtype)
    # Schedulers with inf, -inf scores and masks, NaN scores: none of them is anybody's fault.
    assert healthy["model"]["nan_count"] == healthy["optimizer"]["nan_count"] == 0
    assert healthy["tensors"] == 24
    assert finite.new_nans(healthy, None) == []
    assert finite.new_nans(parameter, healthy) == ["model.2.weight"]
    assert finite.new_nans(optimizer, healthy) == ["optimizer.state.0.exp_avg"]
    # Infinities in a parameter, NaN in buffers and in a scheduler.
    assert odd["inf_count"] == 1
    assert finite.new_nans(odd, healthy) == []
    # Without a save before it there is nothing to be new against.
    assert finite.new_nans(parameter, None) == []


def test_what_was_nan_from_the_first_step_is_not_new(made: Path) -> None:
    first, second, third = told(made / "always")
    assert first["model"]["nan"] == ["model.0.bias"]
    assert finite.new_nans(second, first) == []
    assert finite.new_nans(third, second) == ["model.0.weight"]


def test_a_tensor_that_was_not_there_before_convicts_nobody(made: Path) -> None:
    before, now = told(made / "grown")
    assert now["model"]["nan"] == ["model.head.weight"]
    assert finite.new_nans(now, before) == []


def test_garbage_of_denormals_is_told_as_a_share(made: Path) -> None:
    (garbage,) = told(made / "denormal")
    assert garbage["denormals"] == pytest.approx(64 * 128 / (garbage["bytes"] / 4), abs=0.2)
    assert garbage["denormals"] > 0.1
    (healthy, *_) = told(made / "f32")
    assert healthy["denormals"] == 0


def test_what_lies_between_the_values_of_a_view_is_not_its_own(made: Path) -> None:
    (views,) = told(made / "views")
    assert views["model"]["nan"] == []
    assert (views["tensors"], views["skipped"]) == (2, 1)  # tied weights are read once


def test_safetensors_and_dcp(made: Path) -> None:
    before, now = told(made / "safetensors")
    assert finite.new_nans(now, before) == ["half"]
    assert now["skipped"] == 1  # float8
    before, now = told(made / "dcp")
    assert finite.new_nans(now, before) == ["optim.state.w.exp_avg"]


def test_more_nan_than_names_are_told_convicts_only_by_name() -> None:
    many = {"model": {"same": "x", "nan": ["a"], "nan_count": 40}}
    assert finite.new_nans({"model": {"same": "x", "nan": ["b"], "nan_count": 1}}, many) == []
    one = {"model": {"same": "x", "nan": ["a"], "nan_count": 1}}
    assert finite.new_nans(many, one) == []
    assert finite.new_nans({"model": {"same": "x", "nan": ["b"], "nan_count": 1}}, one) == ["b"]


SAME = {
    "shards": ("checkpoint-{s}", "checkpoint-{s}/model-00001-of-00003.safetensors"),
    "ranks": ("global_step{s}", "global_step{s}/zero_pp_rank_1_mp_rank_00_optim_states.pt"),
    "the step again": ("checkpoint-{s}", "checkpoint-{s}/global_step{s}/zero_pp_rank_1_x.pt"),
    "no number": ("epoch_{e}", "epoch_{e}/dcp/__1_0.distcp"),
    "a group of files": ("run1/ckpt_{s}_model.pt", "run1/ckpt_{s}_optim_rank1.pt"),
    "steps in names": ("run1/a-step={s}.pt", "run1/optim-epoch={e}-step={s}.pt"),
    "parts": ("model_{s}.pt", "optim_{s}.pt"),
}


@pytest.mark.parametrize("case", SAME)
def test_a_file_is_the_same_one_in_the_next_save_whatever_step_and_epoch(case: str) -> None:
    root, path = SAME[case]
    seen = set()
    for step, epoch in ((1, 0), (2, 1), (3, 3), (500, 1), (1000, 2)):
        entry = FileEntry(path.format(s=step, e=epoch), 1, 0o644, 0, 0, 1, 1)
        root_key = root.format(s=step, e=epoch)
        save = FoundSave(root_key, "x", (entry,), step=step, epoch=epoch)
        seen.add(finite._inside(save, entry))
    assert len(seen) == 1, seen


ROLES = {
    ("", "model.layers.0.weight"): Role.MODEL,
    ("", "state_dict.layers.0.loss_head.weight"): Role.MODEL,
    ("", "model.random_projection.weight"): Role.MODEL,
    ("", "optimizer_states.0.state.3.exp_avg"): Role.OPTIMIZER,
    ("", "app.optim.state.w.exp_avg"): Role.OPTIMIZER,
    ("optimizer.pt", "state.0.exp_avg_sq"): Role.OPTIMIZER,
    ("optimizer_0/__0_0.distcp", "state.w"): Role.OPTIMIZER,
    ("scheduler.pt", "best"): None,
    ("rng_state_0.pth", "cpu"): None,
    ("", "lr_schedulers.0.best"): None,
    ("", "callbacks.EarlyStopping.best_score"): None,
    ("", "best_val_loss"): None,
    ("", "loss"): None,
    ("", "scaler.scale"): None,
    ("", "model.h.0.attn.masked_bias"): None,
    ("", "model.bn.running_mean"): None,
    ("", "model.rotary.inv_freq"): None,
    ("model.safetensors", "h.0.attn.c_attn.weight"): Role.MODEL,
}


@pytest.mark.parametrize(("path", "name"), ROLES)
def test_roles(path: str, name: str) -> None:
    assert role_of(path, name) is ROLES[path, name]


CODES = {"F16": "e", "F32": "f", "F64": "d"}
ODD = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-42, 1.0, 65504.0]


@settings(max_examples=150, deadline=None)
@given(form=st.sampled_from([*CODES, "BF16"]), data=st.data())
def test_the_same_as_looking_at_each_value(
    form: str, data: st.DataObject, tmp_path_factory
) -> None:
    size = numbers.FORMS[form].size
    raw = data.draw(st.binary(min_size=size, max_size=64 * size))
    raw = raw[: len(raw) // size * size]
    if form in CODES:
        odd = data.draw(st.lists(st.sampled_from(ODD), max_size=8))
        raw += b"".join(struct.pack("<" + CODES[form], value) for value in odd)
        values = [v for (v,) in struct.iter_unpack("<" + CODES[form], raw)]
    else:
        pairs = [raw[at : at + 2] for at in range(0, len(raw), 2)]
        values = [struct.unpack("<f", b"\0\0" + pair)[0] for pair in pairs]
    place = tmp_path_factory.getbasetemp() / "values"
    place.write_bytes(b"?" * 3 + raw)
    with open(place, "rb") as file:
        window = Window(file.fileno(), 0, 3 + len(raw))
        buffer = bytearray(numbers.PIECE)
        found = numbers.look(window, 3, len(raw), numbers.FORMS[form], buffer)
        with pytest.raises(MalformedError):
            numbers.look(window, 4, len(raw), numbers.FORMS[form], buffer)
    assert found.nan == any(math.isnan(v) for v in values)
    if not found.nan:
        assert found.inf == any(math.isinf(v) for v in values)
        if numbers.FORMS[form].rare_denormals:
            least = {"F64": 2.0**-1022}.get(form, 2.0**-126)
            assert found.denormal == sum(0 < abs(v) < least for v in values)


def test_a_nan_is_found_wherever_a_piece_ends(tmp_path: Path) -> None:
    place, form = tmp_path / "values", numbers.FORMS["F32"]
    count = 3 * numbers.PIECE // 4 + 7
    for at in (0, numbers.PIECE // 4 - 1, numbers.PIECE // 4, count - 1):
        values = bytearray(struct.pack("<f", 0.5) * count)
        values[4 * at : 4 * at + 4] = struct.pack("<f", math.nan)
        place.write_bytes(values)
        with open(place, "rb") as file:
            window = Window(file.fileno(), 0, len(values))
            buffer = bytearray(2 * numbers.PIECE + 5)
            assert numbers.look(window, 0, len(values), form, buffer).nan
            assert not numbers.look(window, 4 * (at + 1), 4 * (count - at - 1), form, buffer).nan
