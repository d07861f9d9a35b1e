"""Lines as real frameworks print them, and what must not be mistaken for progress."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtj_sidecar.trainer.progress import Follower, Progress
from rtj_sidecar.trainer.signs import Sign, read_line, read_progress_line

LINES = [
    # Hugging Face Trainer, transformers 4 and 5
    ("{'loss': 2.3456, 'grad_norm': 1.2, 'learning_rate': 4e-05, 'epoch': 0.03}",
     Sign(epoch=0.03, loss=2.3456, grad_norm=1.2, lr=4e-5)),
    ("{'loss': '2.346', 'grad_norm': '1.2', 'learning_rate': '4e-05', 'epoch': '1.5'}",
     Sign(epoch=1.5, loss=2.346, grad_norm=1.2, lr=4e-5)),
    ("  3%|▎         | 30/1000 [00:10<05:23,  3.00it/s]", Sign(step=30, total=1000)),
    ("{'eval_loss': 2.1, 'epoch': 1.0}", Sign(epoch=1.0)),
    # Lightning
    ("Epoch 2:  45%|####5     | 45/100 [00:10<00:12,  4.50it/s, v_num=0, loss=1.25]",
     Sign(step=245, epoch=2.0, loss=1.25, total=100)),
    ("Validation DataLoader 0:  45%|####5     | 45/100 [00:10<00:12,  4.50it/s]", Sign()),
    ("Loading checkpoint shards:  50%|#####     | 1/2 [00:01<00:01,  1.00s/it]", Sign()),
    ("model.safetensors:  12%|#2        | 126M/1.05G [00:03<00:20, 45.6MB/s]", Sign()),
    # Megatron-LM
    (" [2024-05-01 10:00:00] iteration      100/  500000 | consumed samples:        25600 | "
     "elapsed time per iteration (ms): 1234.5 | learning rate: 1.0E-04 | global batch size:  256 | "
     "lm loss: 1.052345E+01 | loss scale: 1.0 | grad norm: 1.234 |",
     Sign(step=100, loss=10.52345, lr=1e-4, grad_norm=1.234, samples=25600)),
    # nanoGPT
    ("iter 100: loss 2.3456, time 123.45ms, mfu 1.20%", Sign(step=100, loss=2.3456)),
    ("step 250: train loss 2.5001, val loss 2.6002", Sign(step=250, loss=2.5001)),
    # as people write
    ("step 5 loss 0.25", Sign(step=5, loss=0.25)),
    ("[rank0]: Epoch [3/10], Step [40/500], Loss: 0.1234", Sign(step=40, epoch=3, loss=0.1234)),
    ("INFO 2024 global_step=1200 train_loss=1.5e-3", Sign(step=1200, loss=0.0015)),
    ('{"step": 7, "loss": 1.5, "epoch": 1}', Sign(step=7, epoch=1, loss=1.5)),
    ('{"step": 8, "lr": 1e-4, "grad_norm": 2, "samples": 64, "batch_hash": "ab", "step_time": 0.5}',
     Sign(step=8, lr=1e-4, grad_norm=2, samples=64, batch="ab", step_seconds=0.5)),
    ("step 9 | loss 1.5 | lr=3.0e-04 | grad_norm: 0.71",
     Sign(step=9, loss=1.5, lr=3e-4, grad_norm=0.71)),
    ("STEP 12", Sign(step=12)),
    ("Iteration: 33", Sign(step=33)),
    # not progress
    ("max_steps=1000 warmup_steps=100 save_steps=50", Sign()),
    ("total steps: 1000", Sign()),
    ("step time 100ms", Sign()),
    ("step: 12.5 ms", Sign()),
    ("val_loss=0.3", Sign()),
    ("version 1.2.3", Sign()),
    ("", Sign()),
]  # fmt: skip


@pytest.mark.parametrize(("line", "sign"), LINES, ids=[line[:40] for line, _ in LINES])
def test_a_line_says(line: str, sign: Sign) -> None:
    assert read_line(line) == sign


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("step 5 | aux_loss nan | loss 1.2", 1.2),
        ("step 5 | loss 1.2 | kl_loss nan", 1.2),
        ("step 5 value_loss nan", None),
        ("step 5 value_loss 0.5", 0.5),
        ("evaluation loss: nan", None),
        ("eval: step 100 loss nan", None),
        ("[test-run] step 5 loss 2.5", 2.5),
    ],
)
def test_a_part_of_the_loss_or_an_evaluations_is_never_taken_for_one_that_is_no_number(
    line: str, loss: float | None
) -> None:
    assert read_line(line).loss == loss


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 1e300, "loss": 1.5}',
        "train: 10%|#| 123456789012345678901234/999999999999999999999999 [00:10<00:12, loss=1.5]",
        "iteration 99999999999999999999/ 1 | loss: 1.5",
    ],
)
def test_a_number_that_no_status_can_hold_is_no_step(line: str) -> None:
    assert (read_line(line).step, read_line(line).loss) == (None, 1.5)


def test_a_loss_that_is_no_number_is_seen() -> None:
    loss = read_line("{'loss': nan, 'epoch': 1.0}").loss
    assert loss is not None
    assert math.isnan(loss)
    assert read_line("step 3 loss nan").step == 3


@given(st.text())
def test_no_line_breaks_the_reader(line: str) -> None:
    assert isinstance(read_line(line), Sign)
    read_progress_line(line)


def test_a_log_step_is_advice_until_it_equals_a_checkpoints() -> None:
    progress = Progress().with_log(Sign(step=7), now=10.0)
    assert (progress.view().step, progress.view().source, progress.view().confirmed) == (
        7, "log", False,
    )  # fmt: skip
    progress = progress.with_checkpoint(step=100, epoch=None, now=11.0)
    assert (progress.view().step, progress.view().source) == (100, "checkpoint")
    progress = progress.with_log(Sign(step=100), now=12.0).with_log(Sign(step=101), now=13.0)
    assert (progress.view().step, progress.view().source, progress.view().confirmed) == (
        101, "log", True,
    )  # fmt: skip
    progress = progress.with_file(Sign(step=102, loss=0.5), now=14.0)
    assert (progress.view().step, progress.view().source) == (102, "file")
    assert progress.view().first_step_at == 10.0
    assert progress.view().updated_at == 14.0


def test_the_bar_of_an_evaluation_is_not_training() -> None:
    progress = Progress().with_log(Sign(step=500, total=1000), now=1.0)
    progress = progress.with_log(Sign(step=3, total=16), now=2.0)
    assert progress.view().step == 500


def test_the_report_is_always_json() -> None:
    progress = Progress().with_log(Sign(step=1, loss=math.nan, epoch=math.inf), now=1.0)
    assert "nan" not in progress.view().dump_json().lower()


def test_progress_file_lines() -> None:
    assert read_progress_line('{"step": 3, "loss": 0.5, "grad_norm": 1}') == Sign(
        step=3, loss=0.5, grad_norm=1
    )
    for bad in ("", "3", "[]", "{", '{"step": "x"}', '{"step": -1}', '{"step": true}'):
        assert read_progress_line(bad) is None


def test_follows_through_rotation_and_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "trainer.log"
    follower = Follower(path)
    assert follower.lines() == []
    path.write_bytes(b"one\rtwo\nthr")
    assert follower.lines() == ["one", "two"]
    with open(path, "ab") as file:
        file.write(b"ee\nfour\n")
    path.rename(tmp_path / "trainer.log.1")
    path.write_bytes(b"five\n")
    assert follower.lines() == ["three", "four", "five"]
    path.write_bytes(b"x\n")
    assert follower.lines() == ["x"]


def test_skips_what_is_far_behind(tmp_path: Path) -> None:
    path = tmp_path / "trainer.log"
    path.write_bytes(b"a" * 5_000_000 + b"\nstep 5\n")
    assert Follower(path).lines()[-1] == "step 5"
    late = Follower(path, from_end=True)
    assert late.lines() == []
