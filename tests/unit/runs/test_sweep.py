"""What nobody will read is freed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from kit.run_writer import DATA, Writer
from rtj_sidecar.runs.commit import Dropped
from rtj_sidecar.runs.fence import FenceLost
from rtj_sidecar.runs.records import MarkKind
from rtj_sidecar.runs.sweep import Swept
from rtj_sidecar.stores.open import open_store

TOKENIZER = b'{"vocab": {}}' * 1000


@pytest.fixture(params=["memory", "file"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Writer:
    store = MemoryStore() if request.param == "memory" else open_store((tmp_path / "s").as_uri())
    return Writer(store, tmp_path / "disk")


def weights(n: int) -> bytes:
    return f"weights of step {n}".encode()


def test_a_dropped_save_is_freed_an_hour_later_and_its_number_is_not_used_again(
    writer: Writer,
) -> None:
    fence = writer.claim()
    first = writer.save(fence, 1, {"model.pt": weights(1), "tokenizer.json": TOKENIZER})
    ship = writer.name(fence, 2)
    writer.upload(ship, {"model.pt": weights(2), "tokenizer.json": TOKENIZER}, after=first)
    writer.store.delete(f"{DATA}{ship.name}/model.pt")
    assert isinstance(writer.run.publishing.try_commit(ship, fence=fence), Dropped)
    writer.store.put(f"{DATA}{ship.name}/optimizer.pt", b"sent late")
    assert writer.run.publishing.sweep(fence=fence) == Swept(0, ())
    writer.clock[0] += 3600
    assert writer.run.publishing.sweep(fence=fence) == Swept(0, (ship.name,))
    assert writer.stored() == [f"{first}/model.pt", f"{first}/tokenizer.json"]
    assert writer.run.publishing.sweep(fence=fence) == Swept(0, ()), "once"
    assert writer.run.next_n(writer.run.history(), fence) == 3


def test_only_the_holder_sweeps(writer: Writer) -> None:
    fence = writer.claim()
    writer.claim(attempt=2)
    assert isinstance(writer.run.publishing.sweep(fence=fence), FenceLost)


def test_unfinished_uploads_end_only_of_saves_that_are_over(tmp_path: Path) -> None:
    asked: dict[str, bool] = {}

    class Store(MemoryStore):
        def end_uploads(self, prefix: str, *, is_over) -> int:  # type: ignore[no-untyped-def]
            assert prefix == DATA
            asked.update((key, is_over(f"ns/gpt/{key}")) for key in keys)
            return sum(asked.values())

    writer = Writer(Store(), tmp_path / "disk")
    one = writer.claim()
    writer.save(one, 1, {"a": b"1"})
    dropped, waits = writer.name(one, 2), writer.name(one, 3)
    writer.run.judging.mark(dropped.name, kind=MarkKind.DROPPED, reason="Torn", message="torn")
    two = writer.claim(attempt=2)
    writer.save(two, 1, {"a": b"2"})
    keys = [
        "checkpoints/f1-n1-s1/late",
        f"checkpoints/{dropped.name}/a",
        f"checkpoints/{waits.name}/a",
        "checkpoints/f2-n1-s1/late",
        "checkpoints/f9-n9-s9/a",
        "checkpoints/mine/a",
        "outputs/f1/a",
    ]
    assert writer.run.publishing.sweep(fence=two) == Swept(2, ())
    assert [key for key, over in asked.items() if over] == keys[:2]
