"""What is given to `Run` is refused by name where it cannot come back as it was."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from rtj_trainer import registered, snapshot
from rtj_trainer.keeping import Keeper
from rtj_trainer.ranks import Ranks
from rtj_trainer.registered import Kept, not_plain


class FullyShardedDataParallel:
    pass


class Model:
    """`parts` are its modules."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def modules(self) -> list[Any]:
        return [self, *self._parts]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError


def test_the_old_fsdp_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(FullyShardedDataParallel=FullyShardedDataParallel)
    monkeypatch.setitem(sys.modules, "torch.distributed.fsdp", module)  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"model is wrapped .*fully_shard"):
        registered.checked({"model": Model(FullyShardedDataParallel())})
    assert set(registered.checked({"model": Model(Model())})) == {"model"}


class Generic:
    """As NumPy's scalars are: some of them are numbers of Python as well."""

    def item(self) -> float:
        return float(self)  # type: ignore[arg-type]


class Float64(Generic, float):
    pass


@pytest.fixture
def numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(generic=Generic)
    monkeypatch.setitem(sys.modules, "numpy", module)  # type: ignore[misc]


def test_what_is_refused_when_it_is_loaded_is_refused_before(numpy: None) -> None:
    assert not_plain({"a": defaultdict(int)}).endswith("defaultdict")
    assert not_plain({"a": Counter()}).endswith("Counter")
    assert not_plain({"a": [1, {"b": object()}]}) == ".a[1].b: builtins.object"
    assert "the key" in not_plain({"a": {object: 1}})
    assert not_plain({"best": Float64(0.5), "n": (1, None, "x")}) == ""


def test_a_scalar_of_numpy_is_saved_as_pythons_own(numpy: None) -> None:
    copied = snapshot.Snapshot().filled({"best": Float64(0.5), Float64(2.0): [Float64(1.0)]})
    assert copied == {"best": 0.5, 2.0: [1.0]}
    assert [type(copied["best"]), type(copied[2.0][0]), type(list(copied)[1])] == [float] * 3


def test_a_value_that_becomes_one_that_cannot_be_loaded_is_a_failed_save(tmp_path: Any) -> None:
    state: dict[str, Any] = {"best": 1.0}
    things = {"scheduler": Kept(get=lambda: state, put=state.update)}
    keeper = Keeper(tmp_path, ranks=Ranks(), keep=3, trusted=False)
    keeper.check(things)
    state["best"] = {1: SimpleNamespace()}
    keeper.save(5, things=things, own={}, all_={"step": 5})
    assert not keeper.wait()
    assert "scheduler.best.1: types.SimpleNamespace" in keeper.writer.costs.last_error
    assert list(tmp_path.iterdir()) == []


def test_what_each_rank_has_for_itself_comes_back_to_each() -> None:
    found: list[Any] = []
    things = {"key": Kept(get=lambda: 0, put=found.append)}
    save = {"key": 10, "kept": [{"key": 10}, {"key": 11}]}
    for rank in (0, 1, 2):
        assert registered.put_back(things, save, rank=rank) == (["key"], [])
    registered.put_back(things, {"key": 12}, rank=1)
    assert found == [10, 11, 10, 12]


class Tensor:
    """Of a device; a copy of another one."""

    layout = 0
    shape, dtype = (1,), "float"

    def __init__(self, value: int, device: str) -> None:
        self.value = value
        self.device = Device(device)

    def detach(self) -> Tensor:
        return self

    def copy_(self, other: Tensor, *, non_blocking: bool) -> None:
        self.value = other.value


class Device(str):
    @property
    def type(self) -> str:
        return self.partition(":")[0]


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    waited: list[str] = []
    torch = SimpleNamespace(
        Tensor=Tensor,
        strided=0,
        empty=lambda shape, *, dtype, device, pin_memory: Tensor(0, device),
        cuda=SimpleNamespace(synchronize=lambda device: waited.append(device)),
    )
    monkeypatch.setattr(snapshot, "imported", lambda _: torch)
    return waited


def test_every_gpu_that_was_copied_from_is_waited_for(waited_for: list[str]) -> None:
    state = {"a": Tensor(1, "cuda:1"), "b": [Tensor(2, "cuda:3"), Tensor(3, "cpu")]}
    snapshot.Snapshot().filled(state)
    assert sorted(waited_for) == ["cuda:1", "cuda:3"]


def test_names_that_read_alike_have_rooms_of_their_own(waited_for: list[str]) -> None:
    room = snapshot.Snapshot()
    state = {"a/b": Tensor(1, "cpu"), "a": {"b": Tensor(2, "cpu")}, 1: Tensor(3, "cpu")}
    state["1"] = Tensor(4, "cpu")
    copied = room.filled(state)
    values = [copied["a/b"].value, copied["a"]["b"].value, copied[1].value, copied["1"].value]
    assert values == [1, 2, 3, 4]
