"""What one rank of several finds is what all of them act on; alone none would ever go on."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rtj_trainer import files, keeping, restoring, sharded
from rtj_trainer.contract import Told
from rtj_trainer.registered import Kept


class Two:
    """Rank 0 of two; `other` is what rank 1 says where rank 0 says a text or a pair of them."""

    rank, world, group = 0, 2, None

    def __init__(self, other: Any = None) -> None:
        self._other = other

    def everyone(self, value: Any) -> list[Any]:
        is_verdict = isinstance(value, (str, tuple)) and self._other is not None
        return [value, self._other if is_verdict else value]

    def gathered(self, value: Any) -> list[Any]:
        return [value, {**value, "kept": {"key": 11}}] if "kept" in value else [value, value]

    def another_group(self) -> None:
        return None


def save(directory: Path, step: int) -> Path:
    place = files.path_of(directory, step, is_sharded=True)
    place.mkdir(parents=True)
    (place / ".metadata").touch()
    return place


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found: list[Path] = []

    def restore(path: Path, **_: Any) -> Any:
        found.append(path)
        return {}, [], []

    monkeypatch.setattr(sharded, "restore", restore)
    return found


def begin(directory: Path, ranks: Any, *, resume: str | None = None) -> Any:
    return restoring.restore(
        directory,
        told=Told(resume=resume),
        things={},
        ranks=ranks,
        trusted=False,
        allow_scratch=False,
    )


def test_a_shard_that_is_damaged_is_passed_over_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: list[Path]
) -> None:
    older, newer = save(tmp_path, 1), save(tmp_path, 2)
    looked: list[tuple[int, int]] = []

    def prove(path: Path, *, part: int, of: int) -> None:
        looked.append((part, of))
        if path == newer:
            raise files.NotWhole("rtj_step_0000000002/__0_0.distcp is damaged")

    monkeypatch.setattr(sharded, "prove", prove)
    assert begin(tmp_path, Two()).path == older
    assert restored == [older]
    assert looked == [(0, 2), (0, 2)], "each rank reads its part"
    with pytest.raises(ValueError, match=r"cannot be loaded: .*is damaged"):
        begin(tmp_path, Two(), resume=str(newer))


def test_a_rank_that_cannot_see_the_directory_ends_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: list[Path]
) -> None:
    save(tmp_path, 1)
    monkeypatch.setattr(sharded, "prove", lambda path, part, of: None)
    unseen = "rank 1 cannot read it: every rank needs the directory of the saves"
    with pytest.raises(ValueError, match="every rank needs the directory"):
        begin(tmp_path, Two(("", unseen)))
    assert restored == []
    with pytest.raises(FileNotFoundError, match="every rank needs the directory"):
        sharded_prove(tmp_path / "nowhere", part=0, of=2)


sharded_prove = sharded.prove


def test_nobody_writes_where_a_rank_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DCP would wait half an hour for it."""
    place = save(tmp_path, 5)
    monkeypatch.setattr(sharded, "is_sharded", lambda model: True)
    monkeypatch.setattr(sharded, "state_of", lambda things, extras, rank: {})

    def begun(*_: Any, **__: Any) -> Any:
        assert not files.is_finished(place), "what is written over is marked as finished"
        raise AssertionError("written")

    monkeypatch.setattr(sharded, "begin", begun)
    keeper = keeping.Keeper(tmp_path, ranks=Two("rank 1: MemoryError: "), keep=3, trusted=False)  # type: ignore[arg-type]
    keeper.save(5, things={}, own={}, all_={})
    assert "rank 1: MemoryError" in keeper.writer.costs.last_error
    assert files.is_finished(place), "nothing of it was written over"
    alone = keeping.Keeper(tmp_path, ranks=Two(), keep=3, trusted=False)  # type: ignore[arg-type]
    alone.save(5, things={}, own={}, all_={})
    assert alone.writer.costs.last_error == "AssertionError: written"


def test_the_save_that_a_run_goes_on_from_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = save(tmp_path, 5)
    monkeypatch.setattr(sharded, "is_sharded", lambda model: True)
    keeper = keeping.Keeper(tmp_path, ranks=Two(), keep=3, trusted=False)  # type: ignore[arg-type]
    keeper.spared = place
    keeper.save(5, things={}, own={}, all_={})
    assert files.is_finished(place)
    assert not keeper.writer.is_failed


def test_each_ranks_own_value_is_in_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []
    monkeypatch.setattr(files, "write", lambda path, state: written.append(state) or 1)
    keeper = keeping.Keeper(tmp_path, ranks=Two(), keep=3, trusted=False)  # type: ignore[arg-type]
    keeper.save(5, things={"key": Kept(get=lambda: 10, put=print)}, own={"rng": 1}, all_={})
    assert keeper.wait()
    assert written == [{"key": 10, "rng": [1, 1], "kept": [{"key": 10}, {"key": 11}]}]


class DTensor:
    pass


def test_what_is_sharded_beside_model_and_optimizer_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = SimpleNamespace(DTensor=DTensor)
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor", module)  # type: ignore[misc]
    model = SimpleNamespace(parameters=lambda: [DTensor()])
    optimizer = SimpleNamespace(param_groups=[{"params": [DTensor()]}])
    sharded.check({"model": model, "optimizer": optimizer})
    for name, thing in (
        ("ema", model),
        ("second", optimizer),
        ("gradients", SimpleNamespace(model=model)),
    ):
        with pytest.raises(TypeError, match=rf"{name} is sharded .*only model= and its"):
            sharded.check({"model": model, "optimizer": optimizer, name: thing})
    assert sharded._holds_dtensor({"a": [1, {"b": DTensor()}]})
