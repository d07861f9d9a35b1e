"""Clouds that are busy, cut connections, lose replies or send other bytes: nothing gets lost."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit.clouds import Cloud
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.stored import MIB, problem
from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import Cancelled, Conflict, IfAbsent, IfMatch, Store, Written

Open = Callable[..., Store]
# What makes a record visible: the write itself, and HDFS's rename.
WRITES = {"az": "^PUT /[^?]*fence", "gs": "^POST /.*upload", "hdfs": "^PUT .*op=RENAME"}


def test_a_lost_reply_to_our_own_create_is_success(
    opened: Open, cloud: Cloud, proxy: FaultProxy
) -> None:
    store = opened()
    proxy.switch(Fault(Mode.LOSE_REPLY, only=WRITES[cloud.scheme], times=1))
    first = store.put("fence", b"nonce a", condition=IfAbsent())
    assert isinstance(first, Written)
    assert len(proxy.hits(Mode.LOSE_REPLY)) >= 1
    assert store.put("fence", b"nonce b", condition=IfAbsent()) == Conflict()
    seen = store.get("fence")
    assert seen is not None
    assert (seen.data, seen.etag) == (b"nonce a", first.etag)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_lost_reply_to_our_own_replacement_is_success(
    opened: Open, cloud: Cloud, proxy: FaultProxy, times: int
) -> None:
    store = opened()
    first = store.put("fence", b"first", condition=IfAbsent())
    assert isinstance(first, Written)
    proxy.switch(Fault(Mode.LOSE_REPLY, only=WRITES[cloud.scheme], times=times))
    second = store.put("fence", b"second", condition=IfMatch(first.etag))
    assert isinstance(second, Written)
    proxy.heal()
    assert store.put("fence", b"third", condition=IfMatch(first.etag)) == Conflict()
    seen = store.get("fence")
    assert seen is not None
    assert (seen.data, seen.etag) == (b"second", second.etag)
    assert [item.key for item in store.list("")] == ["fence"]


def test_of_writers_whose_replies_get_lost_one_wins(
    opened: Open, cloud: Cloud, proxy: FaultProxy
) -> None:
    stores = [opened() for _ in range(4)]
    first = stores[0].put("fence", b"first")
    assert isinstance(first, Written)
    proxy.switch(Fault(Mode.LOSE_REPLY, only=WRITES[cloud.scheme], times=3))
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(
            pool.map(
                lambda i: stores[i].put("fence", b"%d" % i, condition=IfMatch(first.etag)),
                range(4),
            )
        )
    winners = [b"%d" % i for i, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
    seen = stores[0].get("fence")
    assert seen is not None
    assert winners == [seen.data]


@pytest.mark.parametrize("mode", [Mode.BUSY, Mode.CUT])
def test_files_go_up_and_down_through_faults(
    opened: Open, proxy: FaultProxy, tmp_path: Path, mode: Mode
) -> None:
    store = opened(patience_s=30)
    source, back = tmp_path / "source", tmp_path / "back"
    body = hashlib.sha256(b"x").digest() * (12 * MIB // 32)
    source.write_bytes(body)
    proxy.switch(Fault(mode, times=4))
    sent = store.upload_file("f", source)
    proxy.switch(Fault(mode, times=4))
    store.download("f", back, size=len(body), sha256=sent.sha256)
    assert back.read_bytes() == body
    assert [item.key for item in store.list("")] == ["f"]


def test_bytes_changed_once_on_the_way_are_read_again(
    opened: Open, proxy: FaultProxy, tmp_path: Path
) -> None:
    store = opened()
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(hashlib.sha256(b"y").digest() * (2 * MIB // 32))
    sent = store.upload_file("f", source)
    proxy.switch(Fault(Mode.CORRUPT, only="^GET", times=1))
    store.download("f", back, size=sent.size, sha256=sent.sha256)
    assert back.read_bytes() == source.read_bytes()


def test_a_store_that_stays_away_is_said_to_be(opened: Open, proxy: FaultProxy) -> None:
    store = opened(patience_s=0.5)
    proxy.switch(Fault(Mode.BUSY))
    found = problem(lambda: store.put("f", b"1"))
    assert (found.reason, found.transient) == (Reason.STORE_UNREACHABLE, True)
    proxy.switch(Fault(Mode.REFUSE))
    found = problem(lambda: store.put("f", b"1"))
    assert (found.reason, found.transient) == (Reason.STORE_UNREACHABLE, True)
    assert "checkpoint.store.endpoint" in found.message


def test_an_upload_that_is_put_aside_goes_on_where_it_was(
    opened: Open, cloud: Cloud, proxy: FaultProxy, tmp_path: Path
) -> None:
    store, size = opened(patience_s=30), 48 * MIB
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(size))
    cancel, sent = threading.Event(), [0]

    def progress(count: int) -> None:
        sent[0] += count
        if sent[0] >= size // 2:
            cancel.set()

    proxy.seen.clear()
    with pytest.raises(Cancelled):
        store.upload_file("large", source, progress=progress, cancel=cancel)
    assert store.head("large") is None
    done = store.upload_file("large", source)
    moved = sum(request.sent for request in proxy.seen)
    if cloud.scheme != "hdfs":  # which begins anew
        assert moved < size + 2 * MIB
    store.download("large", back, size=size, sha256=done.sha256)
    assert back.read_bytes() == source.read_bytes()
