"""The upload limit, by a clock of the test's own: bytes that went against time that passed."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kit.paced import Clock, pace
from rtj_sidecar.stores.base import Cancelled, SourceChanged
from rtj_sidecar.stores.file import FileStore
from rtj_sidecar.stores.local import crc64, open_source
from rtj_sidecar.stores.pace import LEAST_PART, Pace
from rtj_sidecar.stores.s3_body import PART, Body
from rtj_sidecar.stores.s3_wire import _send_body
from rtj_sidecar.stores.service import Piece

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sink() -> Iterator[tuple[socket.socket, list[int]]]:
    """A connection, and how many bytes came out of it so far, piece by piece."""
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    ours.settimeout(30)
    theirs, _ = listener.accept()
    came: list[int] = []

    def drain() -> None:
        while data := theirs.recv(1 << 20):
            came.append(len(data))

    draining = threading.Thread(target=drain)
    draining.start()
    yield ours, came
    ours.close()
    draining.join()
    theirs.close()
    listener.close()


@pytest.mark.parametrize("rate", [64 * KIB, MIB, 50_000_000, 10**10])
def test_the_rate_holds_and_nothing_is_saved_up(clock: Clock, rate: int) -> None:
    limit, sent = pace(rate, clock), 0
    began = clock.now
    while sent < 3 * rate:
        sent += limit.take(3 * rate - sent)
        # One piece is ahead of its time at most.
        assert sent <= (clock.now - began) * rate + max(16 * KIB, min(8 * MIB, rate / 4)) + 64
    clock.now += 3600
    idle, after = clock.now, 0
    while after < rate:
        after += limit.take(rate)
    assert clock.now - idle > 0.7 * min(1, rate / (32 * MIB)), "an idle hour buys no burst"


def test_all_threads_share_one_limit(clock: Clock) -> None:
    limit, began = pace(MIB, clock), clock.now
    threads = [threading.Thread(target=limit.take_all, args=(MIB,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Waits of several threads pass one after the other on this clock, so it shows more, not less.
    assert clock.now - began >= 4 - 0.25


def test_a_part_leaves_at_the_rate(
    clock: Clock, sink: tuple[socket.socket, list[int]], tmp_path: Path
) -> None:
    ours, _ = sink
    path = tmp_path / "part"
    path.write_bytes(os.urandom(3 * MIB))
    began = clock.now
    with open_source(path) as source:
        body = Body(source, start=0, end=3 * MIB, pace=pace(MIB, clock))
        _send_body(ours, body, plain=True)
        assert clock.now - began == pytest.approx(3 - 0.25)
        body.seek(0)
        _send_body(ours, body, plain=False)
        assert clock.now - began == pytest.approx(6 - 0.25)
    ours.shutdown(socket.SHUT_WR)


def test_whoever_waits_for_its_turn_can_be_cancelled(
    clock: Clock, sink: tuple[socket.socket, list[int]], tmp_path: Path
) -> None:
    path, cancel = tmp_path / "part", threading.Event()
    path.write_bytes(bytes(3 * MIB))
    cancel.set()
    with open_source(path) as source:
        body = Body(source, start=0, end=3 * MIB, pace=pace(MIB, clock), cancel=cancel)
        with pytest.raises(Cancelled):
            _send_body(sink[0], body, plain=True)
    assert body.tell() == MIB // 4


def test_a_directory_as_a_store_keeps_to_it(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(os.urandom(2 * MIB))
    began = clock.now
    done = FileStore(tmp_path / "store", pace=pace(MIB, clock)).upload_file("model.pt", path)
    assert done.size == 2 * MIB
    assert clock.now - began == pytest.approx(2 - 0.25)


def test_a_piece_of_a_service_leaves_at_the_rate_and_is_proved(
    clock: Clock, tmp_path: Path
) -> None:
    path = tmp_path / "piece"
    path.write_bytes(os.urandom(3 * MIB))
    with open_source(path) as source:
        crc = crc64(path.read_bytes())
        piece = Piece(source, 0, 0, 3 * MIB, crc, "", True, pace=pace(MIB, clock))
        sent, began = 0, clock.now
        for block in piece.stream():
            sent += len(block)
            assert sent <= (clock.now - began) * MIB + MIB / 4
        assert sent == 3 * MIB
        began = clock.now
        assert piece.content() == path.read_bytes()
        assert clock.now - began == pytest.approx(3, abs=0.25)
        wrong = replace(piece, crc=crc ^ 1)
        with pytest.raises(SourceChanged):
            list(wrong.stream())
        stopped = replace(piece, cancel=threading.Event())
        assert stopped.cancel is not None
        stopped.cancel.set()
        with pytest.raises(Cancelled):
            list(stopped.stream())


@pytest.mark.parametrize(("rate", "part"), [(64 * KIB, LEAST_PART), (MIB, 8 * MIB), (10**9, PART)])
def test_a_slow_part_is_a_small_one(rate: int, part: int) -> None:
    assert Pace(rate).part_size(PART) == part
