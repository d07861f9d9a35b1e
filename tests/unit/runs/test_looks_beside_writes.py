"""A look lists ships beside manifests: what is committed or deleted meanwhile is seen as it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, ItemsView, Iterator
from pathlib import Path
from typing import cast

import pytest
from kit.memory_store import MemoryStore
from kit.run_writer import begun, one_save, run_of
from rtj_api.reasons import Reason
from rtj_sidecar.runs.bundles import WORTH
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.history import read_history
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.mark_bundles import MarkId
from rtj_sidecar.runs.records import MarkKind, MarkRecord, SaveFacts
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.base import Listed, Small, StoreProblem


class ShipsLast(MemoryStore):
    """Lists ships only when manifests are listed; `meanwhile` happens in between."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = False
        self.manifests_listed = threading.Event()
        self.ships_listed = threading.Event()
        self.meanwhile = lambda: None

    def list(self, prefix: str) -> Iterator[Listed]:
        if not self.waits:
            return super().list(prefix)
        if prefix == "run/ships/":
            assert self.manifests_listed.wait(10)
            self.meanwhile()
            self.waits = False
            found = list(super().list(prefix))
            self.ships_listed.set()
            return iter(found)
        found = list(super().list(prefix))
        if prefix == "run/manifests/":
            self.manifests_listed.set()
        elif prefix == "run/marks/":
            assert self.ships_listed.is_set(), "a mark rests on what it is about"
        return iter(found)


@pytest.fixture
def store() -> ShipsLast:
    return ShipsLast()


@pytest.fixture
def run(store: ShipsLast, tmp_path: Path) -> Run:
    made = run_of(store, run_id="run")
    begun(made)
    for n in (1, 2):
        one_save(made, n, tmp_path, files=1)
    return made


def test_a_save_committed_while_ships_are_listed_is_committed(run: Run, store: ShipsLast) -> None:
    key = "run/manifests/f1-n2.json"
    manifest = store.objects.pop(key)
    store.waits = True
    store.meanwhile = lambda: store.objects.update({key: manifest})
    known = run_of(store, run_id="run").history()
    assert (list(known.manifests), known.ships) == ([SaveId(1, 1), SaveId(1, 2)], {})


def test_a_manifest_that_is_gone_is_not_there_by_memory(run: Run, store: ShipsLast) -> None:
    """Deleted by another: the ship, then the manifest."""
    assert SaveId(1, 2) in run.history().manifests
    del store.objects["run/manifests/f1-n2.json"]
    known = run.history()
    assert (list(known.manifests), list(known.ships)) == ([SaveId(1, 1)], [SaveId(1, 2)])
    del store.objects["run/ships/f1/2.json"]
    assert SaveId(1, 2) not in run.history().named


def test_a_listing_that_fails_ends_the_look(run: Run, store: ShipsLast) -> None:
    def unreachable() -> None:
        raise StoreProblem(Reason.STORE_UNREACHABLE, "no answer", transient=True)

    store.waits = True
    store.meanwhile = unreachable
    with pytest.raises(StoreProblem, match="no answer"):
        run.history()


def test_one_worker_asks_in_a_fixed_order(run: Run, store: ShipsLast) -> None:
    asked: list[str] = []
    record = run.manifest("f1-n1-s1")
    assert record is not None
    for n in range(3, WORTH + 3):
        told = record.model_copy(update={"n": n, "name": f"f1-n{n}-s{n}"})
        store.put(f"run/manifests/f1-n{n}.json", told.dump_json().encode())
    listing = store.list

    def listed(prefix: str) -> Iterator[Listed]:
        asked.append(prefix.removeprefix("run/"))
        return listing(prefix)

    store.list = listed  # type: ignore[method-assign]
    known = run_of(store, run_id="run", workers=1).history()
    assert len(known.manifests) == WORTH + 2
    assert asked == ["fences/", "ships/", "manifests/", "bundles/", "marks/"]


class Held(MemoryStore):
    """Does `at_get` before each read of that key; lists nothing that is `hidden`."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: set[str] = set()
        self.at_get: dict[str, Callable[[], None]] = {}

    def list(self, prefix: str) -> Iterator[Listed]:
        return iter([each for each in super().list(prefix) if each.key not in self.hidden])

    def get(self, key: str) -> Small | None:
        self.at_get.pop(key, lambda: None)()
        return super().get(key)


def test_two_looks_at_once_do_not_take_what_is_committed_from_each_other(tmp_path: Path) -> None:
    """The second has listed manifests before the newest was there, and asks for it by name."""
    store = Held()
    run = run_of(store, run_id="run")
    begun(run)
    for n in (1, 2):
        one_save(run, n, tmp_path, files=1)
    run.history()
    one_save(run_of(store, run_id="run"), 3, tmp_path, files=1)
    asks, goes_on = threading.Event(), threading.Event()

    def waits() -> None:
        asks.set()
        assert goes_on.wait(10)

    second = threading.Thread(target=run.history)

    def begins() -> None:
        store.hidden = {"run/manifests/f1-n2.json"}
        store.at_get["run/manifests/f1-n2.json"] = waits
        second.start()
        assert asks.wait(10)

    store.at_get["run/manifests/f1-n3.json"] = begins
    found = run.history()
    goes_on.set()
    second.join(10)
    assert list(found.manifests) == [SaveId(1, 1), SaveId(1, 2), SaveId(1, 3)]
    assert not found.ships


class Growing(dict[MarkId, MarkRecord]):
    """Another look adds a mark while this one goes through those that are known."""

    def items(self) -> ItemsView[MarkId, MarkRecord]:
        def each() -> Iterator[tuple[MarkId, MarkRecord]]:
            for at, mark in super(Growing, self).items():
                self[SaveId(9, len(self)), 1] = mark
                yield at, mark

        return cast("ItemsView[MarkId, MarkRecord]", each())


def test_a_mark_that_another_look_has_just_read_ends_no_look(run: Run, store: ShipsLast) -> None:
    facts = SaveFacts(root_key="s3", layout="generic", step=3)
    run.publishing.name_ship(fence=1, n=3, save=facts, seen={0: ["s3"]}, world_size=1, parent=None)
    mark = MarkRecord(kind=MarkKind.DROPPED, reason="x", message="", marked_at=1.0)
    context = Context(
        store=store,
        run_id="run",
        cluster_uid="c",
        job_uid="j",
        rank=0,
        now=lambda: 1.0,
        new_id=lambda: "id",
    )
    said = Growing({(SaveId(1, 1), 1): mark, (SaveId(1, 2), 1): mark})
    assert len(read_history(context, said=said).manifests) == 2
