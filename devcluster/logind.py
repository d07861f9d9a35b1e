"""What a node's systemd would tell its kubelet: that the machine is about to shut down, or not.

A kubelet learns of an orderly shutdown from systemd-logind, over D-Bus, and delays it while it ends
its pods. The nodes here have no systemd, so this is both: a bus with one peer each, and the few
answers of `org.freedesktop.login1.Manager` that a kubelet asks for. SIGUSR1 says that the node
shuts down, SIGUSR2 that it does not after all. Run as a program within a node's namespaces; of the
standard library only, and nothing else is ever answered.
"""

import os
import selectors
import signal
import socket
import struct
import sys
from typing import Any

PLACE = "/run/dbus/system_bus_socket"  # where every client looks for the system's bus
DELAY_MICROSECONDS = 3600 * 1_000_000  # longer than any kubelet asks for, so it changes no file
CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
PATH, INTERFACE, MEMBER, ERROR_NAME, REPLY_TO, SIGNATURE, HANDLES = 1, 2, 3, 4, 5, 8, 9
TYPES = {PATH: "o", INTERFACE: "s", MEMBER: "s", ERROR_NAME: "s", REPLY_TO: "u", SIGNATURE: "g"}
TYPES[HANDLES] = "u"
OBJECT, MANAGER = "/org/freedesktop/login1", "org.freedesktop.login1.Manager"


def aligned(size: int, to: int) -> int:
    return -size % to


def encoded(kind: str, value: Any) -> bytes:
    """One basic value of the D-Bus wire format, little endian, without its padding."""
    if kind == "g":
        raw = value.encode()
        return bytes([len(raw)]) + raw + b"\0"
    if kind in "so":
        raw = value.encode()
        return struct.pack("<I", len(raw)) + raw + b"\0"
    return struct.pack({"u": "<I", "b": "<I", "h": "<I", "t": "<Q"}[kind], value)


def message(
    kind: int, serial: int, fields: dict[int, Any], *, signature: str = "", body: bytes = b""
) -> bytes:
    if signature:
        fields = {**fields, SIGNATURE: signature}
    array = b""
    for code, value in fields.items():
        array += b"\0" * aligned(len(array), 8) + bytes([code]) + encoded("g", TYPES[code])
        if TYPES[code] != "g":
            array += b"\0" * aligned(len(array), 4)
        array += encoded(TYPES[code], value)
    head = struct.pack("<cBBBII", b"l", kind, 0, 1, len(body), serial)
    head += struct.pack("<I", len(array)) + array
    return head + b"\0" * aligned(len(head), 8) + body


def parsed(raw: bytes) -> tuple[int, dict[str, Any]] | None:
    """The first message's size, and its kind, serial and text fields; None: not all of it here."""
    if len(raw) < 16:
        return None
    order = "<" if raw[:1] == b"l" else ">"
    body, serial, array = struct.unpack(order + "III", raw[4:16])
    start = 16 + array + aligned(16 + array, 8)
    if len(raw) < start + body:
        return None
    found: dict[str, Any] = {"kind": raw[1], "serial": serial}
    at = 16
    while at < 16 + array:
        at += aligned(at, 8)
        code, kind = raw[at], chr(raw[at + 2])
        at += 4
        if kind == "g":
            size, width = raw[at], 1
        elif kind in "so":
            size, width = struct.unpack(order + "I", raw[at : at + 4])[0], 4
        else:
            at += 4
            continue
        found[str(code)] = raw[at + width : at + width + size].decode()
        at += width + size + 1
    return start + body, found


class Peer:
    """One client. Talks SASL first, messages then."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.raw = b""
        self.has_begun = False
        self.serial = 0
        self.locks: list[int] = []

    def feed(self, raw: bytes) -> None:
        self.raw += raw.lstrip(b"\0") if not self.has_begun else raw
        while not self.has_begun and b"\r\n" in self.raw:
            line, _, self.raw = self.raw.partition(b"\r\n")
            self.greet(line.decode())
        while self.has_begun and (found := parsed(self.raw)) is not None:
            size, call = found
            self.raw = self.raw[size:]
            if call["kind"] == CALL:
                self.answer(call)

    def greet(self, line: str) -> None:
        words = line.split()
        if line == "BEGIN":
            self.has_begun = True
        elif words[:2] == ["AUTH", "EXTERNAL"]:
            self.connection.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
        elif line == "NEGOTIATE_UNIX_FD":
            self.connection.sendall(b"AGREE_UNIX_FD\r\n")
        else:
            self.connection.sendall(b"REJECTED EXTERNAL\r\n")

    def answer(self, call: dict[str, Any]) -> None:
        member = call.get(str(MEMBER), "")
        if member == "Hello":
            self.reply(call, "s", encoded("s", ":1.1"))
        elif member == "Get":
            variant = encoded("g", "t")
            variant += b"\0" * aligned(len(variant), 8) + encoded("t", DELAY_MICROSECONDS)
            self.reply(call, "v", variant)
        elif member == "Inhibit":
            reading, writing = os.pipe()  # the lock: the kubelet closes its end to let it go
            self.locks.append(reading)
            self.reply(call, "h", encoded("h", 0), handle=writing)
            os.close(writing)
        elif member in ("AddMatch", "RemoveMatch"):
            self.reply(call, "", b"")
        else:
            name = {ERROR_NAME: "org.freedesktop.DBus.Error.UnknownMethod"}
            self.send(message(ERROR, self.next(), {**name, REPLY_TO: call["serial"]}))

    def reply(
        self, call: dict[str, Any], signature: str, body: bytes, *, handle: int | None = None
    ) -> None:
        fields: dict[int, Any] = {REPLY_TO: call["serial"]}
        if handle is not None:
            fields[HANDLES] = 1
        self.send(
            message(RETURN, self.next(), fields, signature=signature, body=body), handle=handle
        )

    def tell(self, *, shuts_down: bool) -> None:
        fields = {PATH: OBJECT, INTERFACE: MANAGER, MEMBER: "PrepareForShutdown"}
        body = encoded("b", int(shuts_down))
        self.send(message(SIGNAL, self.next(), fields, signature="b", body=body))

    def next(self) -> int:
        self.serial += 1
        return self.serial

    def send(self, raw: bytes, *, handle: int | None = None) -> None:
        if handle is None:
            self.connection.sendall(raw)
        else:
            socket.send_fds(self.connection, [raw], [handle])

    def close(self) -> None:
        self.connection.close()
        for lock in self.locks:
            os.close(lock)


def main() -> None:
    os.makedirs(os.path.dirname(PLACE), exist_ok=True)
    if os.path.exists(PLACE):
        os.unlink(PLACE)  # of one that ended
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(PLACE)
    listener.listen()
    waking, woken = socket.socketpair()
    for end in (waking, woken):
        end.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)
    chosen = selectors.DefaultSelector()
    chosen.register(listener, selectors.EVENT_READ)
    chosen.register(waking, selectors.EVENT_READ)
    peers: dict[socket.socket, Peer] = {}
    print("waits for clients", flush=True)
    while True:
        for key, _ in chosen.select():
            there = key.fileobj
            assert isinstance(there, socket.socket)
            if there is listener:
                connection, _ = listener.accept()
                peers[connection] = Peer(connection)
                chosen.register(connection, selectors.EVENT_READ)
            elif there is waking:
                for number in waking.recv(64):
                    print(f"signal {number} for {len(peers)} clients", flush=True)
                    for peer in peers.values():
                        peer.tell(shuts_down=number == signal.SIGUSR1)
            else:
                try:
                    raw = there.recv(65536)
                except OSError:
                    raw = b""
                if raw:
                    peers[there].feed(raw)
                else:
                    chosen.unregister(there)
                    peers.pop(there).close()


if __name__ == "__main__":
    sys.exit(main())
