"""Metrics in the names of saves."""

from __future__ import annotations

import pytest
from rtj_sidecar.checkpoints.layouts.metric_names import metrics_in, with_named_metrics
from rtj_sidecar.checkpoints.types import FoundSave


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("model_epoch-0010_step-012000_loss-0.1520_20260101.pt", {"loss": 0.152}),
        ("epoch=3-step=900-val_loss=0.25.ckpt", {"val_loss": 0.25}),
        ("best-acc0.911-loss1e-3.pt", {"acc": 0.911, "loss": 0.001}),
        ("sub/ckpt_loss=-1.5.pt", {"loss": -1.5}),
        ("loss=nan_ckpt_3.pt", {}),
        ("gpt-v1.2_step_10.pt", {}),
        ("llama-7.5B_step_10.pt", {}),
        ("ckpt_10.pt", {}),
        ("loss-0.5/ckpt_10.pt", {}),
    ],
)
def test_a_decimal_after_a_word_is_a_metric(name: str, metrics: dict[str, float]) -> None:
    assert metrics_in(name) == metrics


def test_the_content_goes_before_the_name() -> None:
    save = FoundSave(root_key="val_loss=0.5.pt", layout="torch", files=())
    assert with_named_metrics(save).loss == 0.5
    told = FoundSave(root_key="val_loss=0.5.pt", layout="torch", files=(), loss=0.125)
    assert with_named_metrics(told).loss == 0.125
