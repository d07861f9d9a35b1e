"""How many requests a check and a look at a run cost: they do not grow with what is no news."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from kit.run_writer import begun, one_save, run_of
from rtj_sidecar.runs import verify
from rtj_sidecar.runs.bundles import SIZE, WORTH
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import MarkKind, SaveFacts
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.sweep import Swept

FILES = 40


class Counting(MemoryStore):
    """Counts calls by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str):  # type: ignore[no-untyped-def]
        if name in ("get", "head", "list", "put", "sha256", "upload_file"):
            self.calls[name] += 1
        return super().__getattribute__(name)


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture
def run(store: Counting) -> Run:
    made = run_of(store, run_id="run")
    begun(made)
    return made


def save(run: Run, n: int, disk: Path, *, files: int = FILES) -> str:
    return one_save(run, n, disk, files=files)


def test_a_save_of_many_files_is_checked_by_one_listing(
    run: Run, store: Counting, tmp_path: Path
) -> None:
    name = save(run, 1, tmp_path)
    store.calls.clear()
    assert run.judging.examine(name) == []
    assert store.calls == {"list": 1}


def test_what_a_listing_does_not_confirm_is_looked_at_by_itself(
    run: Run, store: Counting, tmp_path: Path
) -> None:
    name = save(run, 1, tmp_path)
    data = f"run/checkpoints/{name}/s1"
    for number in (3, 5, 7):
        del store.objects[f"{data}/{number}"]
    store.put(f"{data}/3", b"x 3")  # of the size, with other bytes
    store.put(f"{data}/5", b"longer than before")
    store.put(f"{data}/9", b"1 9")  # the same bytes, put again
    store.calls.clear()
    found = {finding.path: finding.reason for finding in run.judging.examine(name)}
    assert found == {
        "s1/3": "CheckpointCorrupt",
        "s1/5": "CheckpointCorrupt",
        "s1/7": "CheckpointObjectMissing",
    }
    assert store.calls["head"] == 4


def test_which_tier_an_object_has_moved_to_no_listing_tells(
    run: Run, store: Counting, tmp_path: Path
) -> None:
    name = save(run, 1, tmp_path)
    key = f"run/checkpoints/{name}/s1/3"
    store.classes[key] = "ARCHIVE_ACCESS"
    store.calls.clear()
    (finding,) = run.judging.examine(name)
    assert (finding.path, finding.reason) == ("s1/3", "CheckpointArchived")
    assert store.calls["head"] == 1


def test_what_is_archived_between_look_and_fetch_is_passed_over(
    run: Run, store: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is not bad, and no reason to ask the store again and again."""
    name = save(run, 1, tmp_path)
    key = f"run/checkpoints/{name}/s1/3"
    store.classes[key] = "DEEP_ARCHIVE"
    monkeypatch.setattr(verify, "READ_AT_ONCE", (None, "DEEP_ARCHIVE"))
    history = run.history()
    (judged,) = run.judging.vet(run.candidates(history), incoming=tmp_path / "incoming")
    assert judged.invalid == "CheckpointArchived"
    assert run.history().marks == history.marks


def test_a_look_at_a_run_lists_no_part_of_what_is_durable(
    run: Run, store: Counting, tmp_path: Path
) -> None:
    for n in range(1, 6):
        save(run, n, tmp_path, files=1)
    run.history()
    store.calls.clear()
    known = run.history()
    assert (len(known.manifests), known.parts) == (5, {})
    # Fences, ships, manifests, marks; and the one fence.
    assert store.calls == {"list": 4, "get": 1}


def test_parts_of_an_open_save_are_read(run: Run, store: Counting, tmp_path: Path) -> None:
    save(run, 1, tmp_path, files=1)
    facts = SaveFacts(root_key="s2", layout="generic", step=2)
    named = run.publishing.name_ship(
        fence=1, n=2, save=facts, seen={0: ["."]}, world_size=1, parent=None
    )
    assert isinstance(named, Named)
    run.publishing.answer_none(named.ship, why="no files")
    found = run.history().parts
    assert [(str(at), list(parts)) for at, parts in found.items()] == [("f1-n2", [0])]


def committed(run: Run, store: Counting, *, saves: int) -> None:
    """Copies of one manifest under other numbers, as a long run has them."""
    record = run.manifest("f1-n1-s1")
    assert record is not None
    for n in range(2, saves + 1):
        other = record.model_copy(update={"n": n, "name": f"f1-n{n}-s{n}", "step": n})
        store.put(f"run/manifests/f1-n{n}.json", other.dump_json().encode())


def another(store: Counting) -> Run:
    """A new pod's sidecar, which knows nothing of the run."""
    return run_of(store, run_id="run")


def test_a_long_run_is_read_from_bundles(run: Run, store: Counting, tmp_path: Path) -> None:
    save(run, 1, tmp_path, files=1)
    committed(run, store, saves=2 * SIZE + 10)
    assert run.publishing.sweep(fence=1) == Swept(0, ())
    assert len([key for key in store.objects if key.startswith("run/bundles/")]) == 2
    new = another(store)
    store.calls.clear()
    known = new.history()
    # The fence, two bundles, and the ten manifests that are in none yet.
    assert (len(known.manifests), store.calls["get"]) == (2 * SIZE + 10, 13)
    assert known == run.history()
    assert run.publishing.sweep(fence=1) == Swept(0, ())
    assert len([key for key in store.objects if key.startswith("run/bundles/")]) == 2


def test_a_bundle_is_believed_only_of_what_is_there_unchanged(
    run: Run, store: Counting, tmp_path: Path
) -> None:
    save(run, 1, tmp_path, files=1)
    committed(run, store, saves=SIZE)
    run.publishing.sweep(fence=1)
    other = run.manifest("f1-n7-s7")
    assert other is not None
    changed = other.model_copy(update={"loss": 0.5})
    store.put("run/manifests/f1-n7.json", changed.dump_json().encode())
    store.delete("run/manifests/f1-n9.json")
    known = another(store).history()
    assert known.manifests[SaveId(1, 7)].loss == 0.5
    assert SaveId(1, 9) not in known.manifests
    (bundle,) = [key for key in store.objects if key.startswith("run/bundles/")]
    store.put(bundle, b"{broken")
    assert another(store).history() == known


def test_of_a_bundle_with_one_odd_entry_all_others_are_believed(
    run: Run, store: Counting, tmp_path: Path
) -> None:
    save(run, 1, tmp_path, files=1)
    committed(run, store, saves=SIZE)
    run.publishing.sweep(fence=1)
    (key,) = [key for key in store.objects if key.startswith("run/bundles/")]
    told = json.loads(store.objects[key][0])
    told["entries"][6]["manifest"]["files"] = "none"
    store.put(key, json.dumps(told).encode())
    new = another(store)
    store.calls.clear()
    known = new.history()
    # The fence, the bundle, and that manifest by itself.
    assert (len(known.manifests), store.calls["get"]) == (SIZE, 3)
    assert known == run.history()


def test_a_bundle_keeps_what_this_version_does_not_know(
    run: Run, store: Counting, tmp_path: Path
) -> None:
    save(run, 1, tmp_path, files=1)
    committed(run, store, saves=SIZE)
    told = json.loads(store.objects["run/manifests/f1-n7.json"][0])
    store.put("run/manifests/f1-n7.json", json.dumps({**told, "ofALaterVersion": 3}).encode())
    run.publishing.sweep(fence=1)
    (key,) = [key for key in store.objects if key.startswith("run/bundles/")]
    entries = json.loads(store.objects[key][0])["entries"]
    (seventh,) = [each["manifest"] for each in entries if each["manifest"]["n"] == 7]
    assert seventh == {**told, "ofALaterVersion": 3}


def test_a_mark_is_read_once(run: Run, store: Counting, tmp_path: Path) -> None:
    name = save(run, 1, tmp_path, files=1)
    run.judging.mark(name, kind=MarkKind.PINNED, reason="x", message="kept")
    run.history()
    store.calls.clear()
    known = run.history()
    assert known.pinned(SaveId(1, 1))
    assert store.calls["get"] == 1, "the fence"
    another(store).judging.mark(name, kind=MarkKind.UNPINNED, reason="x", message="not any more")
    assert not run.history().pinned(SaveId(1, 1)), "a new one is seen"


def dropped(run: Run, store: Counting, *, first: int, saves: int) -> None:
    """Saves that got a name and a part, and were dropped, as a store that is too slow has them."""
    for n in range(first, first + saves):
        facts = SaveFacts(root_key=f"s{n}", layout="generic", step=n)
        named = run.publishing.name_ship(
            fence=1, n=n, save=facts, seen={0: ["."]}, world_size=1, parent=None
        )
        assert isinstance(named, Named)
        run.publishing.answer_none(named.ship, why="no files")
        run.judging.mark(
            named.ship.name, kind=MarkKind.DROPPED, reason="UploadLagging", message="late", fence=1
        )


def test_a_look_at_many_dropped_saves_reads_no_part_of_them_and_each_record_once(
    run: Run, store: Counting
) -> None:
    dropped(run, store, first=1, saves=WORTH + 10)
    new = another(store)
    store.calls.clear()
    history = new.history()
    assert len(history.ships) == WORTH + 10
    assert all(history.condemned(save) for save in history.ships)
    # A ship and a mark of each, and the fence; ships, manifests twice, marks, fences, mark bundles.
    assert store.calls["get"] == 2 * (WORTH + 10) + 1
    assert store.calls["list"] == 6
    store.calls.clear()
    assert new.history() == history
    assert store.calls["get"] == 1
    assert store.calls["list"] == 5


def test_marks_of_a_long_run_are_read_from_bundles(run: Run, store: Counting) -> None:
    dropped(run, store, first=1, saves=2 * SIZE)
    for key in [key for key in store.objects if "/ships/" in key or "/parts/" in key]:
        del store.objects[key]  # as a sweep leaves it
    assert isinstance(run.publishing.sweep(fence=1), Swept)
    assert len([key for key in store.objects if key.startswith("run/bundles/marks/")]) == 2
    new = another(store)
    store.calls.clear()
    marks = new.history().marks
    assert len(marks) == 2 * SIZE
    assert store.calls["get"] == 2 + 1  # the bundles, and the fence
    # What changed since it was bundled is read itself.
    (key,) = [key for key in store.objects if key.startswith("run/marks/f1-n7/")]
    there = store.get(key)
    assert there is not None
    store.put(key, there.data.replace(b"late", b"LATE"))
    assert another(store).history().marks[SaveId(1, 7)][0].message == "LATE"


def test_a_damaged_bundle_of_marks_costs_requests_and_nothing_else(
    run: Run, store: Counting
) -> None:
    dropped(run, store, first=1, saves=WORTH)
    assert isinstance(run.publishing.sweep(fence=1), Swept)
    (key,) = [key for key in store.objects if key.startswith("run/bundles/marks/")]
    store.put(key, b"{")
    assert len(another(store).history().marks) == WORTH


def test_a_save_committed_beside_a_look_at_many_open_ones_is_not_open_in_it(
    run: Run, store: Counting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its ship is listed after the manifests were: another listing finds it."""
    dropped(run, store, first=2, saves=WORTH)
    save(run, 1, tmp_path, files=1)
    manifest = store.objects.pop("run/manifests/f1-n1.json")
    listing = store.list
    asked: list[str] = []

    def list_and_commit(prefix: str):  # type: ignore[no-untyped-def]
        found = list(listing(prefix))
        if prefix.endswith("/manifests/"):
            asked.append(prefix)
            store.objects["run/manifests/f1-n1.json"] = manifest
        return iter(found)

    monkeypatch.setattr(store, "list", list_and_commit)
    history = another(store).history()
    assert len(asked) == 2
    assert SaveId(1, 1) in history.manifests
    assert SaveId(1, 1) not in history.ships
