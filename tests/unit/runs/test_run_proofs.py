"""What is proved before it is chosen or placed: by the store's word, by reading, from peers."""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from kit.ranks import (
    SCRATCH,
    Ranks,
    claimed,
    data,
    facts,
    flip,
    named,
    shipped,
)
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.fetch import Fetched, FetchFailed
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.stores.base import Store


def test_newest_flipped_next_missing_third_taken(
    ranks: Ranks, store: Store, tmp_path: Path
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    for n in (1, 2, 3):
        shipped(zero, fence, n, 10 * n)
    flip(store, "checkpoints/f1-n3-s30/ckpt_30")
    store.delete("ns/gpt/checkpoints/f1-n2-s20/ckpt_20")

    new = ranks(0)
    fence = claimed(new, 2)
    history = new.run.history()
    judged = new.run.judging.vet(
        new.run.candidates(history), incoming=tmp_path / "incoming", fence=fence
    )
    assert [(c.name, c.invalid) for c in judged] == [
        ("f1-n3-s30", "CheckpointCorrupt"),
        ("f1-n2-s20", "CheckpointObjectMissing"),
        ("f1-n1-s10", None),
    ]
    assert (tmp_path / "incoming/f1-n1-s10/ckpt_10").read_bytes() == b"weights of step 10"
    moved = new.run.moving.fetch("f1-n1-s10", tmp_path / "incoming/f1-n1-s10")
    assert moved == Fetched(files=1, bytes_from_peers=0, bytes_from_store=0, bytes_kept=18)
    history = new.run.history()
    assert [c.invalid for c in new.run.candidates(history)] == [c.invalid for c in judged]
    [flipped] = history.marks[SaveId(1, 3)]
    assert flipped.evidence["file"] == "ckpt_30"
    assert flipped.evidence["expected"] != flipped.evidence["got"]
    index = json.loads(data(store, "manifest.json"))
    assert [c["is_valid"] for c in index["checkpoints"]] == [True, False, False]
    assert index["latest_valid_checkpoint"].endswith("ckpt_10")

    store.delete("ns/gpt/checkpoints/f1-n1-s10/ckpt_10")
    judged = new.run.judging.vet(new.run.candidates(history), incoming=None, fence=fence)
    assert [c.invalid is None for c in judged] == [False, False, False]


def test_bytes_that_rot_under_an_unchanged_checksum_are_found_by_reading(
    ranks: Ranks, store: Store, tmp_path: Path
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 10)
    if isinstance(store, MemoryStore) or store.url.startswith("s3"):
        pytest.skip("needs a store whose bytes can change under it")
    path = tmp_path / "store/ns/gpt/checkpoints/f1-n1-s10/ckpt_10"
    at = path.stat()
    with path.open("r+b") as file:
        file.write(b"W")
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    found = zero.run.candidates(zero.run.history())
    assert [c.invalid for c in zero.run.judging.vet(found, incoming=None)] == [None]
    [judged] = zero.run.judging.vet(found, incoming=tmp_path / "in")
    assert judged.invalid == "CheckpointCorrupt"
    assert list((tmp_path / "in/f1-n1-s10").iterdir()) == []


def test_a_pinned_save_is_not_fetched_to_be_proved(ranks: Ranks, tmp_path: Path) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 10)
    found = zero.run.candidates(zero.run.history())
    zero.run.judging.vet(found, pinned=["f1-n1-s10"], incoming=tmp_path / "in")
    assert not (tmp_path / "in").exists()


def serve(directory: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(directory))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_peers_before_the_store_and_never_their_wrong_bytes(
    ranks: Ranks, store: Store, tmp_path: Path
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    save = facts(10)
    ship = named(zero, fence, 1, save, {0: ["good file", "bad"]})
    bodies = {"good file": b"good bytes", "bad": b"other bytes"}
    zero.run.moving.upload_part(ship, files=zero.save("s", bodies), save=save)
    assert isinstance(zero.run.publishing.try_commit(ship, fence=fence), Committed)
    served = tmp_path / "peer/saves/f1-n1-s10/files"
    served.mkdir(parents=True)
    (served / "good file").write_bytes(b"good bytes")
    (served / "bad").write_bytes(b"wrong bytes")
    for peer in serve(tmp_path / "peer"):
        peers = ["http://127.0.0.1:9", peer]
        files = zero.run.suiting.wanted(ship.name)
        good = [file for file in files if file.path == "good file"]
        # First alone: a peer that gave wrong bytes is not asked for what a thread begins later.
        got = zero.run.moving.fetch(ship.name, tmp_path / "in", files=good, peers=peers)
        assert got == Fetched(1, bytes_from_peers=10, bytes_from_store=0, bytes_kept=0)
        got = zero.run.moving.fetch(ship.name, tmp_path / "in", files=files, peers=peers)
        assert got == Fetched(2, bytes_from_peers=0, bytes_from_store=11, bytes_kept=10)
        assert (tmp_path / "in/good file").read_bytes() == b"good bytes"
        assert (tmp_path / "in/bad").read_bytes() == b"other bytes"
        failed = zero.run.moving.fetch(
            ship.name, tmp_path / "in2", files=files, peers=peers, from_store=False
        )
        assert isinstance(failed, FetchFailed)
        assert failed.finding is None
        assert "bad" in failed.message


def test_a_disk_that_cannot_be_written_is_not_the_saves_fault(ranks: Ranks, tmp_path: Path) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 10)
    (tmp_path / "in").write_text("a file in the way")
    failed = zero.run.moving.fetch("f1-n1-s10", tmp_path / "in")
    assert isinstance(failed, FetchFailed)
    assert failed.finding is None
    assert isinstance(zero.run.moving.fetch("f9-n9-s9", tmp_path / "x"), FetchFailed)
