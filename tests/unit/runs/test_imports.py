"""Checkpoints of another origin become saves of a run: from a directory and from a bucket path."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kit.foreign import playbook, put_files, torch_bytes, torn, write_files
from kit.memory_store import MemoryStore
from rtj_api.reasons import Reason
from rtj_api.wire import Found, Wanted
from rtj_sidecar.checkpoints.types import Gate, GateResult
from rtj_sidecar.runs.fence import Claimed
from rtj_sidecar.runs.imports import places
from rtj_sidecar.runs.records import ManifestRecord, Parent
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.base import Cancelled, Store, StoreProblem

PLACES = ("directory", "bucket")


@dataclass
class Origin:
    """Where the foreign files lie, and a run that takes them up."""

    kind: str
    directory: Path
    store: MemoryStore
    elsewhere: MemoryStore
    run: Run
    incoming: Path

    def holds(self, files: Mapping[str, bytes]) -> None:
        if self.kind == "directory":
            write_files(self.directory, files)
        else:
            put_files(self.elsewhere, "old/ckpts", files)

    def value(self, path: str = "") -> str:
        base = str(self.directory) if self.kind == "directory" else "s3://bucket/old/ckpts"
        return f"{base}/{path}".rstrip("/")

    def find(self, path: str = "", **more: Any) -> Found:
        return self.run.find(
            self.run.history(),
            wanted=Wanted(value=self.value(path), asked="spec"),
            fence=1,
            incoming=self.incoming,
            **more,
        )

    def taken(self, path: str = "") -> ManifestRecord:
        found = self.find(path)
        assert found.save is not None, found.problem
        manifest = self.run.manifest(found.save.name)
        assert manifest is not None
        assert self.run.judging.examine(found.save.name, deep=True) == []
        return manifest


@pytest.fixture(params=PLACES)
def origin(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Origin:
    monkeypatch.setattr(places, "SETTLE_S", 0.0)
    store, elsewhere = MemoryStore(), MemoryStore()

    def opened(url: str) -> Store:
        if url.startswith("file://"):
            from rtj_sidecar.stores.open import open_store

            return open_store(url)
        below = url.removeprefix("s3://bucket").strip("/")
        return elsewhere if not below else Below(elsewhere, below)  # type: ignore[return-value]

    run = Run(
        store=store,
        run_id="ns/gpt",
        cluster_uid="cluster",
        job_uid="job",
        rank=0,
        union_gate=lambda *_: GateResult(Gate.SET, None, "no rule"),
        open_place=opened,
    )
    claimed = run.claim(attempt=1, world_size=1)
    assert isinstance(claimed, Claimed)
    directory = tmp_path / "old" / "ckpts"
    directory.mkdir(parents=True)
    return Origin(request.param, directory, store, elsewhere, run, tmp_path / "incoming")


class Below:
    """A store of the same objects, below a prefix."""

    def __init__(self, store: MemoryStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self.url = f"{store.url}/{prefix}"

    def get(self, key: str) -> object:
        return self._store.get(f"{self._prefix}/{key}")


def test_the_newest_by_the_step_in_the_content_is_taken(origin: Origin) -> None:
    origin.holds(
        {
            "ckpt_0999.pt": torch_bytes(step=999),
            "ckpt_1000.pt": torch_bytes(step=1000, epoch=3),
            "ckpt_77.pt": torch_bytes(step=76),
            "notes.txt": b"lr was too high",
        }
    )
    manifest = origin.taken()
    assert (manifest.step, manifest.epoch, manifest.root_key) == (1000, 3, "ckpt_1000.pt")
    assert (manifest.status, manifest.layout, manifest.full_state) == ("Verified", "torch", True)
    assert manifest.imported is not None
    assert (manifest.imported.run, manifest.imported.name) == ("", "ckpt_1000.pt")
    assert manifest.facts["companions"] == ["notes.txt"]
    assert {file.path for file in manifest.files} == {"ckpt_1000.pt", "notes.txt"}
    assert not origin.incoming.exists()
    origin.run.set_parent(fence=1, parent=Parent(name=manifest.name, step=1000, asked="spec"))
    assert [c.name for c in origin.run.candidates(origin.run.history())] == [manifest.name]


def test_a_torn_newest_one_is_passed_over_with_its_name(origin: Origin) -> None:
    good = torch_bytes(step=20)
    origin.holds(
        {
            "ckpt_10.pt": torch_bytes(step=10),
            "ckpt_20.pt": good,
            "ckpt_30.pt": torn(torch_bytes(step=30)),
            "ckpt_40.pt": torch_bytes(step=40)[:9000],
        }
    )
    found = origin.find()
    assert found.save is not None, found.problem
    assert found.save.step == 20
    assert {text.partition(":")[0] for text in found.passed_over} == {"ckpt_40.pt", "ckpt_30.pt"}
    assert all("Torn" in text for text in found.passed_over)


def test_what_could_be_anything_is_no_checkpoint(origin: Origin) -> None:
    origin.holds({"ckpt_10.pt": torch_bytes(step=10), "ckpt_20.pt": b"<html>sign in</html>"})
    found = origin.find()
    assert found.save is None or found.save.step == 10
    told = found.problem or " ".join(found.passed_over)
    assert "ckpt_20.pt" in told


def test_a_format_of_ones_own_is_taken_where_it_is_named(origin: Origin) -> None:
    origin.holds({"state_7.bin": b"1234", "state_8.bin": b"5678"})
    found = origin.find(include=("state_*.bin",))
    assert found.save is not None, found.problem
    assert found.save.step == 8


def test_if_all_are_torn_nothing_is_taken_and_each_is_told(origin: Origin) -> None:
    origin.holds({f"ckpt_{n}.pt": torn(torch_bytes(step=n)) for n in (1, 2)})
    found = origin.find()
    assert found.save is None
    assert "ckpt_1.pt" in (found.problem or "")
    assert "ckpt_2.pt" in (found.problem or "")
    assert list(origin.store.list("ns/gpt/manifests/")) == []


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds no checkpoint"),
        ({"readme.md": b"#"}, "holds no checkpoint"),
        ({"a.pt": torch_bytes(weights_only=True, step=3)}, "weights only"),
        (
            {"epoch_8.pt": torch_bytes(epoch=8), "step_500.pt": torch_bytes(step=500)},
            "count different things",
        ),
        (
            {"a/ckpt_9.pt": torch_bytes(step=9), "b/ckpt_9.pt": torch_bytes(step=9)},
            "at the same position",
        ),
        ({"a.pt": torch_bytes(), "b.pt": torch_bytes()}, "states a step or an epoch"),
    ],
)
def test_what_cannot_be_ordered_is_not_guessed_at(
    origin: Origin, files: dict[str, bytes], words: str
) -> None:
    origin.holds({"log/x.txt": b"so that the directory is there"} | files)
    found = origin.find()
    assert found.save is None
    assert words in (found.problem or "")


def test_a_single_save_can_be_named_though_it_states_no_step(origin: Origin) -> None:
    origin.holds({"a.pt": torch_bytes(), "b.pt": torch_bytes(), "ckpt_1.pt": torch_bytes(step=1)})
    manifest = origin.taken("b.pt")
    assert (manifest.root_key, manifest.step) == ("b.pt", None)
    assert {file.path for file in manifest.files} == {"b.pt"}


def test_a_directory_that_is_one_save_keeps_its_name(origin: Origin) -> None:
    origin.holds(
        {
            "step_10/model.pt": torch_bytes(weights_only=True),
            "step_10/optimizer.pt": torch_bytes(step=10),
            "step_100/model.pt": torch_bytes(weights_only=True),
            "step_100/optimizer.pt": torch_bytes(step=100),
        }
    )
    manifest = origin.taken("step_10")
    assert (manifest.root_key, manifest.step) == ("step_10", 10)
    assert {f.path for f in manifest.files} == {"step_10/model.pt", "step_10/optimizer.pt"}
    assert origin.taken().step == 100


def test_names_that_say_step_epoch_and_loss_are_a_hint(origin: Origin) -> None:
    origin.holds(
        {
            "model_epoch-0009_step-011000_loss-0.1610_20251231.pt": torch_bytes(),
            "model_epoch-0010_step-012000_loss-0.1520_20260101.pt": torch_bytes(),
        }
    )
    manifest = origin.taken()
    assert (manifest.step, manifest.epoch, manifest.loss) == (12_000, 10, 0.152)


def test_the_pointer_of_the_place_is_turned_to_what_was_taken(origin: Origin) -> None:
    origin.holds(
        {
            "ckpt_10.pt": torch_bytes(step=10),
            "ckpt_20.pt": torn(torch_bytes(step=20)),
            "latest": b"ckpt_20.pt\n",
        }
    )
    manifest = origin.taken()
    assert manifest.step == 10
    assert manifest.facts["pointers"] == [
        {"path": "latest", "kind": "text", "value": "ckpt_10.pt\n"}
    ]


def test_the_same_files_are_copied_once_and_others_anew(origin: Origin) -> None:
    origin.holds({"ckpt_10.pt": torch_bytes(step=10)})
    first = origin.taken()
    assert origin.taken().name == first.name
    origin.holds({"ckpt_10.pt": torch_bytes(step=10, note="trained on") + b""})
    assert origin.taken().name != first.name


def test_what_is_written_meanwhile_is_not_taken(
    origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin.holds({"ckpt_10.pt": torch_bytes(step=10)})
    upload = origin.store.upload_file

    def meanwhile(key: str, *more: Any, **options: Any) -> Any:
        done = upload(key, *more, **options)
        origin.holds({"ckpt_10.pt": torch_bytes(step=10, more="x")})
        return done

    origin.store.upload_file = meanwhile  # type: ignore[method-assign]
    with pytest.raises(StoreProblem, match="ckpt_10") as raised:
        origin.find()
    assert raised.value.transient
    assert raised.value.reason == Reason.RESUME_FROM_UNUSABLE
    assert list(origin.store.list("ns/gpt/manifests/")) == []


def test_an_import_can_be_cancelled(origin: Origin) -> None:
    origin.holds({"ckpt_10.pt": torch_bytes(step=10)})
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        origin.find(cancel=cancel)
    assert not origin.incoming.exists()


def entries(*paths: str, **more: Any) -> list[dict[str, Any]]:
    return [{"path": path, "step": 10 * (n + 1), **more} for n, path in enumerate(paths)]


def test_a_manifest_is_heeded_where_it_is_named_and_where_it_lies(origin: Origin) -> None:
    bad = {"path": "ckpt_30.pt", "step": 30, "is_valid": False}
    gone = {"path": "ckpt_40.pt", "step": 40}
    origin.holds(
        {f"ckpt_{n}.pt": torch_bytes(step=n) for n in (10, 20, 30)}
        | {"manifest.json": playbook(*entries("ckpt_10.pt", "ckpt_20.pt"), bad, gone)}
    )
    for path in ("manifest.json", ""):
        found = origin.find(path)
        assert found.save is not None, found.problem
        assert found.save.step == 20
        told = " ".join(found.passed_over)
        assert "ckpt_30.pt: the manifest says that it is not valid" in told
        assert "ckpt_40.pt: the manifest names it and it is not there" in told


@pytest.mark.parametrize("prefix", ["/checkpoints/run1", "s3://other/run1", "file:///x/run1", "."])
def test_paths_of_another_machine_are_found_by_their_tail(origin: Origin, prefix: str) -> None:
    origin.holds(
        {
            "sub/a.pt": torch_bytes(),
            "sub/b.pt": torch_bytes(),
            "m.json": playbook(*entries(f"{prefix}/sub/a.pt", f"{prefix}/sub/b.pt")),
        }
    )
    manifest = origin.taken("m.json")
    assert (manifest.root_key, manifest.step) == ("sub/b.pt", 20), "its step is the manifest's"


def test_the_pointer_of_a_manifest_decides_only_where_nothing_else_can(origin: Origin) -> None:
    files = {"a.pt": torch_bytes(), "b.pt": torch_bytes()}
    listed = [{"path": "a.pt"}, {"path": "b.pt"}]
    origin.holds(files | {"manifest.json": playbook(*listed, latest="a.pt")})
    assert origin.taken("manifest.json").root_key == "a.pt"
    origin.holds({"manifest.json": playbook(*entries("a.pt", "b.pt"), latest="a.pt")})
    assert origin.taken("manifest.json").root_key == "b.pt"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "no JSON"),
        (b"[]", '"checkpoints"'),
        (b'{"checkpoints": [{"step": 1}]}', "checkpoints[0]"),
        (b'{"checkpoints": [{"path": "a.pt", "is_valid": "no"}]}', "is_valid"),
        (b'{"checkpoints": [{"path": "gone.pt"}]}', "gone.pt"),
        (b'{"checkpoints": []}', "names no checkpoint"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(origin: Origin, data: bytes, words: str) -> None:
    origin.holds({"a.pt": torch_bytes(step=1), "m.json": data})
    found = origin.find("m.json")
    assert found.save is None
    assert words in (found.problem or "")


def test_a_content_that_contradicts_a_manifest_wins(origin: Origin) -> None:
    origin.holds(
        {
            "a.pt": torch_bytes(step=7),
            "b.pt": torch_bytes(step=5),
            "m.json": playbook({"path": "a.pt", "step": 1}, {"path": "b.pt", "step": 9000}),
        }
    )
    assert (origin.taken("m.json").root_key, origin.taken("m.json").step) == ("a.pt", 7)


def test_a_directory_that_another_still_writes_is_left_alone(tmp_path: Path) -> None:
    write_files(tmp_path, {"ckpt_1.pt": torch_bytes(step=1)})
    place = places.Directory(
        tmp_path, sleep=lambda _: write_files(tmp_path, {"ckpt_1.pt": torch_bytes(step=1, x=2)})
    )
    from rtj_sidecar.checkpoints.layouts import layouts_for
    from rtj_sidecar.stores.base import SourceChanged

    with pytest.raises(SourceChanged, match="being written"):
        place.look(layouts_for())
    assert replace(place, sleep=lambda _: None).look(layouts_for()).found.saves[0].step == 1


def test_only_what_a_look_needs_of_a_bucket_is_brought() -> None:
    from rtj_sidecar.checkpoints.layouts import layouts_for

    store = MemoryStore()
    read = store.read
    brought: list[int] = []

    def counted(key: str, *, start: int, end: int) -> bytes:
        brought.append(end - start)
        return read(key, start=start, end=end)

    store.read = counted  # type: ignore[method-assign]
    files = {f"ckpt_{n}.pt": torch_bytes(step=n) for n in range(1, 9)}
    put_files(store, "old", files)
    look = places.Bucket(store, "old").look(layouts_for())
    assert [save.step for save in look.found.saves] == list(range(1, 9))
    assert sum(brought) < 0.75 * sum(map(len, files.values()))
