"""Required keys: read inertly from real saves, merged over ranks, and never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import checkpoint_fixtures
from rtj_sidecar.checkpoints import required
from rtj_sidecar.checkpoints.inspect import inspect_path
from rtj_sidecar.checkpoints.reader import Reader

SCRIPT = Path(checkpoint_fixtures.__file__).with_name("make_numbers.py")


@pytest.fixture(scope="module")
def made() -> Path:
    return checkpoint_fixtures.made_by(SCRIPT, name="numbers")


def looked(run: Path, *patterns: str) -> required.Required:
    """At the newest save of a run."""
    save, _ = inspect_path(run)[-1]
    return required.required_of(save, Reader(run), patterns=patterns)


FOUND = {
    ("f32", "optimizer"): True,
    ("f32", "optimizer.state.0.exp_avg"): True,
    ("f32", "optimizer.state.*.exp_avg"): True,
    ("f32", "model.2.weight"): True,
    ("f32", "lr_schedulers.0"): True,
    ("f32", "*.weight"): True,
    ("f32", "step"): True,
    ("f32", "dataloader"): False,
    ("f32", "model.9.weight"): False,
    ("f32", "optim"): False,
    ("dcp", "model.w"): True,
    ("dcp", "optim"): True,
    ("dcp", "optim.state.*"): True,
    ("dcp", "optim.stat?"): True,
    ("dcp", "scheduler"): False,
    ("safetensors", "half"): True,
    ("safetensors", "optimizer"): False,
}


@pytest.mark.parametrize(("run", "pattern"), FOUND)
def test_names_of_real_saves(made: Path, run: str, pattern: str) -> None:
    found = looked(made / run, pattern)
    assert found.unread == ()
    assert bool(found.held) == FOUND[run, pattern]
    lost = required.lacking(found.as_fact(), patterns=[pattern])
    assert (lost is None) == FOUND[run, pattern]
    if lost is not None:
        assert lost[0] == pattern
        assert any(str(path) in lost[1] for path in found.where)


def test_names_that_cannot_be_read_are_neither_there_nor_missing(tmp_path: Path) -> None:
    (tmp_path / "ckpt_1.pt").write_bytes(bytes.fromhex("80028a0a6cfc9c46f9206aa850192e") + b"x")
    (save, _), *_ = inspect_path(tmp_path)
    found = required.required_of(save, Reader(tmp_path), patterns=["optimizer"])
    assert found.unread == ("ckpt_1.pt",)
    assert required.lacking(found.as_fact(), patterns=["optimizer"]) is None
    assert required.unread(found.as_fact(), patterns=["optimizer"]) == "ckpt_1.pt"


def test_over_the_parts_of_all_ranks() -> None:
    with_it = required.Required(("optimizer",), (), ("__0.pt",)).as_fact()
    without = required.Required((), ("optimizer",), ("__1.pt",)).as_fact()
    unread = required.Required((), ("optimizer",), (), ("__2.bin",)).as_fact()
    ask = {"patterns": ["optimizer"]}
    assert required.lacking(required.merged([with_it, without]), **ask) is None
    assert required.lacking(required.merged([without, without]), **ask) is not None
    both = required.merged([without, unread])
    assert required.lacking(both, **ask) is None
    assert required.unread(both, **ask) == "__2.bin"
    assert required.unread(required.merged([with_it, unread]), **ask) is None
    assert required.merged([]) is None


def test_only_what_is_required_now_counts() -> None:
    told = required.Required(("optimizer",), ("scheduler",), ("a.pt",)).as_fact()
    assert required.lacking(told, patterns=["optimizer"]) is None
    assert required.lacking(told, patterns=["scheduler"]) == ("scheduler", "a.pt")
    assert required.lacking(told, patterns=["loader"]) is None  # nobody looked for it then
    assert required.lacking(None, patterns=["optimizer"]) is None
