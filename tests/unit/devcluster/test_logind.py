"""What plays a node's systemd: its words on the wire, and what it answers a client."""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from devcluster import logind

NAMES = {
    logind.PATH: logind.OBJECT,
    logind.INTERFACE: logind.MANAGER,
    logind.MEMBER: "PrepareForShutdown",
}


@pytest.fixture
def talk() -> Iterator[tuple[logind.Peer, socket.socket]]:
    here, there = socket.socketpair()
    peer = logind.Peer(there)
    yield peer, here
    peer.close()
    here.close()


def greeted(peer: logind.Peer, here: socket.socket) -> None:
    peer.feed(b"\0AUTH\r\n")
    assert here.recv(100).startswith(b"REJECTED EXTERNAL")
    peer.feed(b"AUTH EXTERNAL 30\r\n")
    assert here.recv(100).startswith(b"OK ")
    peer.feed(b"NEGOTIATE_UNIX_FD\r\nBEGIN\r\n")
    assert here.recv(100) == b"AGREE_UNIX_FD\r\n"


def call(serial: int, member: str) -> bytes:
    return logind.message(logind.CALL, serial, {**NAMES, logind.MEMBER: member})


@pytest.mark.parametrize("body", [b"", b"\1\0\0\0"])
def test_a_message_is_read_as_it_was_written(body: bytes) -> None:
    raw = logind.message(logind.SIGNAL, 7, NAMES, signature="b" if body else "", body=body)
    assert logind.parsed(raw[:-1]) is None, "not all of it is here"
    found = logind.parsed(raw + b"more")
    assert found is not None
    size, fields = found
    assert size == len(raw)
    assert (fields["kind"], fields["serial"]) == (logind.SIGNAL, 7)
    assert [fields[str(code)] for code in NAMES] == list(NAMES.values())


def test_a_client_gets_a_lock_and_hears_of_the_shutdown(
    talk: tuple[logind.Peer, socket.socket],
) -> None:
    peer, here = talk
    greeted(peer, here)
    whole = call(1, "Hello") + call(2, "Inhibit")
    peer.feed(whole[:10])
    peer.feed(whole[10:])
    raw, ancillary, _, _ = here.recvmsg(4096, socket.CMSG_SPACE(struct.calcsize("i")))
    kinds = []
    while (found := logind.parsed(raw)) is not None:
        raw = raw[found[0] :]
        kinds.append(found[1]["kind"])
    if len(kinds) < 2:  # the lock comes in a message of its own
        raw, ancillary, _, _ = here.recvmsg(4096, socket.CMSG_SPACE(struct.calcsize("i")))
    ((_, _, data),) = ancillary
    (lock,) = array.array("i", data)
    os.close(lock)
    for shuts_down in (True, False):
        peer.tell(shuts_down=shuts_down)
        raw = here.recv(4096)
        found = logind.parsed(raw)
        assert found is not None
        assert found[1][str(logind.MEMBER)] == "PrepareForShutdown"
        assert struct.unpack("<I", raw[-4:])[0] == shuts_down


def test_what_it_does_not_know_is_refused(talk: tuple[logind.Peer, socket.socket]) -> None:
    peer, here = talk
    greeted(peer, here)
    peer.feed(call(1, "PowerOff"))
    found = logind.parsed(here.recv(4096))
    assert found is not None
    assert found[1]["kind"] == logind.ERROR
