"""Bytes that the store has already are copied inside it, so that no save rests on another's."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from kit.memory_store import Crash, MemoryStore
from kit.run_writer import DATA, Writer
from rtj_api.reasons import Reason
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.runs.keeping import Keep
from rtj_sidecar.runs.records import MarkKind
from rtj_sidecar.runs.retain import Retained
from rtj_sidecar.runs.reuse import HASHED_AT_ONCE, MOST_COPIES, sample_of
from rtj_sidecar.stores.base import Head, ObjectMissing, StoreProblem, copier
from rtj_sidecar.stores.open import open_store

TOKENIZER = b'{"vocab": {}}' * 1000


@pytest.fixture(params=["memory", "file"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Writer:
    store = MemoryStore() if request.param == "memory" else open_store((tmp_path / "s").as_uri())
    return Writer(store, tmp_path / "disk")


@pytest.fixture
def on_memory(tmp_path: Path) -> Writer:
    return Writer(MemoryStore(), tmp_path / "disk")


def weights(n: int) -> bytes:
    return f"weights of step {n}".encode()


def test_every_save_has_all_its_files_and_an_unchanged_one_is_not_sent(
    writer: Writer, tmp_path: Path
) -> None:
    fence = writer.claim()
    before: str | None = None
    for n in (1, 2, 3):
        files = {"model.pt": weights(n), "tokenizer.json": TOKENIZER}
        before = writer.save(fence, n, files, after=before)
    assert writer.stored() == [
        f"f1-n{n}-s{n}/{name}" for n in (1, 2, 3) for name in ("model.pt", "tokenizer.json")
    ]
    each = len(weights(1)) + len(TOKENIZER)
    if copier(writer.store) is not None:
        assert writer.moved == {"sent": each + 2 * len(weights(1)), "kept": 2 * len(TOKENIZER)}
    else:
        assert writer.moved == {"sent": 3 * each, "kept": 0}
    assert before is not None
    for n in (1, 2):  # nothing rests on what was there before
        for name in ("model.pt", "tokenizer.json"):
            writer.store.delete(f"{DATA}f1-n{n}-s{n}/{name}")
    assert writer.run.judging.examine(before, deep=True) == []
    got = writer.run.moving.fetch(before, tmp_path / "back")
    assert isinstance(got, Fetched)
    assert (tmp_path / "back/tokenizer.json").read_bytes() == TOKENIZER
    assert (tmp_path / "back/model.pt").read_bytes() == weights(3)


def test_a_copy_under_another_name_is_copied_in_the_store(on_memory: Writer) -> None:
    writer = on_memory
    fence = writer.claim()
    body = os.urandom(HASHED_AT_ONCE + 1)
    first = writer.save(fence, 1, {"epoch1.ckpt": body})
    files = {"epoch2.ckpt": os.urandom(len(body)), "best.ckpt": body}
    second = writer.save(fence, 2, files, after=first)
    assert writer.store.copied == [f"{DATA}{second}/best.ckpt"]
    assert writer.stored() == [
        "f1-n1-s1/epoch1.ckpt",
        "f1-n2-s2/best.ckpt",
        "f1-n2-s2/epoch2.ckpt",
    ]


def test_an_alias_shares_the_key_of_its_file_also_where_that_was_copied(on_memory: Writer) -> None:
    writer = on_memory
    fence = writer.claim()
    first = writer.save(fence, 1, {"a.ckpt": TOKENIZER, "last.ckpt": TOKENIZER})
    second = writer.save(fence, 2, {"a.ckpt": TOKENIZER, "last.ckpt": TOKENIZER}, after=first)
    manifest = writer.run.manifest(second)
    assert manifest is not None
    assert {file.path: file.key for file in manifest.files} == {
        "a.ckpt": f"checkpoints/{second}/a.ckpt",
        "last.ckpt": f"checkpoints/{second}/a.ckpt",
    }
    assert writer.stored() == ["f1-n1-s1/a.ckpt", "f1-n2-s2/a.ckpt"]


def test_a_rotten_object_hurts_one_save_and_is_not_copied(on_memory: Writer) -> None:
    writer = on_memory
    fence = writer.claim()
    first = writer.save(fence, 1, {"frozen.pt": TOKENIZER})
    second = writer.save(fence, 2, {"frozen.pt": TOKENIZER}, after=first)
    writer.rot(second, "frozen.pt")
    third = writer.save(fence, 3, {"frozen.pt": TOKENIZER}, after=second)
    bad = [
        name for name in (first, second, third) if writer.run.judging.examine(name, deep=True) != []
    ]
    assert bad == [second]


def test_bytes_are_sent_again_now_and_then(on_memory: Writer) -> None:
    writer = on_memory
    fence, before = writer.claim(), None
    for n in range(1, 2 * MOST_COPIES + 4):
        before = writer.save(fence, n, {"frozen.pt": TOKENIZER}, after=before)
    assert writer.moved["sent"] == 3 * len(TOKENIZER)
    assert len(writer.store.copied) == 2 * MOST_COPIES


def test_what_the_store_will_not_prove_or_do_is_sent(tmp_path: Path) -> None:
    class Strange(MemoryStore):
        how = "refused"

        def copy(self, source: str, target: str, *, etag: str, cancel: object = None) -> Head:
            match self.how:
                case "refused":
                    raise StoreProblem(Reason.CREDENTIALS_REFUSED, "copy_object: AccessDenied")
                case "away":
                    raise StoreProblem(Reason.STORE_UNREACHABLE, "copying", transient=True)
                case "gone":
                    raise ObjectMissing(source)
            self.put(target, b"x" * len(self.objects[source][0]))  # half done, or other bytes
            head = self.head(target)
            assert head is not None
            match self.how:
                case "class":
                    return replace(head, crc64nvme=None, storage_class="STANDARD_IA")
                case "archive":
                    return replace(head, crc64nvme=None, storage_class="GLACIER")
            return head

    store = Strange()
    writer = Writer(store, tmp_path / "disk")
    fence = writer.claim()
    before = writer.save(fence, 1, {"a.json": TOKENIZER})
    for n, how in enumerate(("refused", "away", "gone", "class", "archive", "bytes"), 2):
        store.how = how
        before = writer.save(fence, n, {"a.json": TOKENIZER}, after=before)
        assert store.objects[f"{DATA}{before}/a.json"][0] == TOKENIZER, how
        assert writer.run.judging.examine(before, deep=True) == []
    assert writer.moved == {"sent": 7 * len(TOKENIZER), "kept": 0}


@pytest.mark.parametrize(
    "kind", [MarkKind.INVALID, MarkKind.DELETED, MarkKind.ARCHIVED, MarkKind.OTHER]
)
def test_nothing_is_copied_from_a_save_with_a_word_against_it(
    on_memory: Writer, kind: MarkKind
) -> None:
    writer = on_memory
    fence = writer.claim()
    first = writer.save(fence, 1, {"a.json": TOKENIZER})
    writer.run.judging.mark(first, kind=MarkKind.PINNED, reason="Resumed", message="in use")
    second = writer.save(fence, 2, {"a.json": TOKENIZER}, after=first)
    assert writer.store.copied == [f"{DATA}{second}/a.json"], "a pin is no word against it"
    writer.run.judging.mark(first, kind=kind, reason="ByUser", message="no")
    writer.save(fence, 3, {"a.json": TOKENIZER}, after=first)
    assert writer.store.copied == [f"{DATA}{second}/a.json"]
    assert writer.stored() == [f"f1-n{n}-s{n}/a.json" for n in (1, 2, 3)]


def test_killed_between_the_copy_and_the_part_it_goes_on(on_memory: Writer) -> None:
    writer = on_memory
    fence = writer.claim()
    first = writer.save(fence, 1, {"a.json": TOKENIZER})
    ship = writer.name(fence, 2)

    def die(key: str) -> None:
        if "/parts/" in key:
            raise Crash

    writer.store.before_write = die
    with pytest.raises(Crash):
        writer.upload(ship, {"a.json": TOKENIZER}, after=first)
    writer.store.before_write = lambda key: None
    again = Writer(writer.store, writer.disk, writer.clock)
    again.upload(ship, {"a.json": TOKENIZER}, after=first)
    assert writer.store.copied == [f"{DATA}{ship.name}/a.json"], "copied once"
    assert again.moved == {"sent": 0, "kept": len(TOKENIZER)}
    assert isinstance(again.run.publishing.try_commit(ship, fence=fence), Committed)
    assert again.run.judging.examine(ship.name, deep=True) == []


def test_equal_size_and_sample_are_no_equal_bytes(writer: Writer, tmp_path: Path) -> None:
    fence = writer.claim()
    body = bytearray(os.urandom(HASHED_AT_ONCE + 1))
    first = writer.save(fence, 1, {"model.pt": bytes(body)})
    body[200_000] ^= 1  # between the pieces of the sample
    second = writer.save(fence, 2, {"model.pt": bytes(body)}, after=first)
    one, two = (writer.disk / n / "model.pt" for n in "12")
    assert sample_of(one, len(body)) == sample_of(two, len(body))
    writer.run.moving.fetch(second, tmp_path / "back")
    assert (tmp_path / "back/model.pt").read_bytes() == body


def test_what_is_not_in_the_store_as_recorded_is_sent(writer: Writer) -> None:
    fence = writer.claim()
    files = {"a.json": TOKENIZER, "b.json": TOKENIZER[::-1]}
    first = writer.save(fence, 1, files)
    writer.store.delete(f"{DATA}{first}/a.json")
    writer.store.put(f"{DATA}{first}/b.json", b"x" * len(TOKENIZER))
    second = writer.save(fence, 2, files, after=first)
    manifest = writer.run.manifest(second)
    assert manifest is not None
    assert [file.key for file in manifest.files] == [
        f"checkpoints/{second}/a.json",
        f"checkpoints/{second}/b.json",
    ]


def test_what_lies_in_an_archive_is_sent(tmp_path: Path) -> None:
    class Archive(MemoryStore):
        def head(self, key: str) -> Head | None:
            found = super().head(key)
            is_first = key.startswith(f"{DATA}f1-n1-")
            return replace(found, storage_class="GLACIER") if found and is_first else found

    writer = Writer(Archive(), tmp_path / "disk")
    fence = writer.claim()
    first = writer.name(fence, 1)
    writer.upload(first, {"a.json": TOKENIZER}, after=None)
    ship = writer.name(fence, 2)
    writer.upload(ship, {"a.json": TOKENIZER}, after=first.name)
    assert writer.stored() == ["f1-n1-s1/a.json", "f1-n2-s2/a.json"]


@pytest.mark.parametrize("after", ["f7-n7-s7", "not a name"])
def test_a_save_that_nobody_knows_spares_nothing(writer: Writer, after: str) -> None:
    writer.save(writer.claim(), 1, {"a": b"1"}, after=after)
    assert writer.stored() == ["f1-n1-s1/a"]


def test_an_interrupted_part_goes_on_with_what_is_there(tmp_path: Path) -> None:
    store = MemoryStore()
    writer = Writer(store, tmp_path / "disk")
    fence = writer.claim()
    ship = writer.name(fence, 1)
    files = {"a": b"1" * 10, "b": b"2" * 20, "c": b"3" * 30}
    store.objects[f"{DATA}{ship.name}/c"] = (files["c"], "etag c")  # sent before the crash
    store.objects[f"{DATA}{ship.name}/b"] = (b"x" * 20, "etag b")  # of the size, but damaged
    written: list[str] = []
    store.after_write = written.append
    writer.upload(ship, files, after=None)
    assert sorted(key for key in written if key.startswith(DATA)) == [
        f"{DATA}{ship.name}/a",
        f"{DATA}{ship.name}/b",
    ]
    assert isinstance(writer.run.publishing.try_commit(ship, fence=fence), Committed)


def test_retention_of_the_old_save_leaves_the_new_one_whole(writer: Writer) -> None:
    fence = writer.claim()
    files = {"tokenizer.json": TOKENIZER}
    first = writer.save(fence, 1, {"model.pt": weights(1), **files})
    slow = writer.name(fence, 2)
    writer.upload(slow, {"model.pt": weights(2), **files}, after=first)
    third = writer.save(fence, 3, {"model.pt": weights(3), **files}, after=first)
    retain(writer, fence)
    left = [f"{name}/{path}" for name in (slow.name, third) for path in ("model.pt", *files)]
    assert writer.stored() == left
    assert isinstance(writer.run.publishing.try_commit(slow, fence=fence), Committed)
    for name in (slow.name, third):
        assert writer.run.judging.examine(name, deep=True) == []


def test_what_a_manifest_names_elsewhere_is_restored_and_never_deleted(
    on_memory: Writer, tmp_path: Path
) -> None:
    writer = on_memory
    fence = writer.claim()
    first = writer.save(fence, 1, {"a.json": TOKENIZER, "b": b"1"})
    second = writer.save(fence, 2, {"a.json": TOKENIZER, "b": b"2"})
    key = f"ns/gpt/manifests/f{fence}-n2.json"
    record = json.loads(writer.store.objects[key][0])
    for file in record["files"]:
        if file["path"] == "a.json":
            file["key"], file["etag"] = f"checkpoints/{first}/a.json", None
    writer.store.put(key, json.dumps(record).encode())
    writer = Writer(writer.store, writer.disk, writer.clock)
    retain(writer, fence)
    assert writer.stored() == ["f1-n1-s1/a.json", "f1-n2-s2/a.json", "f1-n2-s2/b"]
    assert isinstance(writer.run.moving.fetch(second, tmp_path / "back"), Fetched)
    assert (tmp_path / "back/a.json").read_bytes() == TOKENIZER


def retain(writer: Writer, fence: int) -> None:
    """Mark, and delete an hour later."""
    keep = Keep(last=1)
    assert isinstance(writer.run.tending.retain(fence=fence, keep=keep), Retained)
    writer.clock[0] += 3600
    assert isinstance(writer.run.tending.retain(fence=fence, keep=keep), Retained)
