"""Checkpoints of another origin become saves of a run: from a directory and from a bucket path."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.foreign import put_files, torch_bytes, torn, write_files
from kit.memory_store import MemoryStore
from kit.origins import Origin
from rtj_api.reasons import Reason
from rtj_sidecar.runs.imports import places
from rtj_sidecar.runs.records import Parent
from rtj_sidecar.stores.base import Cancelled, StoreProblem


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
