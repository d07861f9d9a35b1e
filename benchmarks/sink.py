"""The least that looks like S3: takes bytes and forgets them, serves ranges of one file.

It exists so that a benchmark shows what the clients can do: what it takes is dropped in the kernel
without a copy (MSG_TRUNC, tcp(7)), what it serves leaves by sendfile(2). Checks nothing.

    python benchmarks/sink.py FILE      prints its port
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import sys
import threading
from pathlib import Path


def served(connection: socket.socket, *, source: int, size: int) -> None:
    # A client that is ended in the middle is no fault of the sink.
    with contextlib.suppress(ConnectionError), connection:
        serve(connection, source=source, size=size)


def serve(connection: socket.socket, *, source: int, size: int) -> None:
    reader = connection.makefile("rb")
    while first := reader.readline():
        method, target, _ = first.split()
        headers: dict[bytes, bytes] = {}
        while line := reader.readline().strip():
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        if b"expect" in headers:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        drop(connection, reader, int(headers.get(b"content-length", 0)))
        if method == b"GET" and b"uploads" in target:
            answer(connection, b"<ListMultipartUploadsResult/>")
        elif method == b"GET":
            bounds = re.fullmatch(rb"bytes=(\d+)-(\d*)", headers.get(b"range", b"bytes=0-"))
            assert bounds is not None
            start, end = int(bounds[1]), min(int(bounds[2] or size - 1), size - 1) + 1
            head = f'HTTP/1.1 206 Partial\r\nContent-Length: {end - start}\r\nETag: "x"\r\n'
            head += f"Content-Range: bytes {start}-{end - 1}/{size}\r\n\r\n"
            connection.sendall(head.encode())
            while start < end:
                start += os.sendfile(connection.fileno(), source, start, end - start)
        elif method == b"HEAD":
            head = f'HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nETag: "x"\r\n\r\n'
            connection.sendall(head.encode())
        elif method == b"POST" and b"uploads" in target:
            name = b"InitiateMultipartUploadResult"
            answer(connection, b"<%s><UploadId>u</UploadId></%s>" % (name, name))
        elif method == b"POST":
            name = b"CompleteMultipartUploadResult"
            answer(connection, b'<%s><ETag>"x"</ETag></%s>' % (name, name))
        else:
            # As a server that has verified the body says it.
            crc = headers.get(b"x-amz-checksum-crc64nvme", b"").decode()
            answer(connection, b"", f"x-amz-checksum-crc64nvme: {crc}\r\n" if crc else "")


def drop(connection: socket.socket, reader: io.BufferedReader, left: int) -> None:
    """Take a body. What the reader has buffered already is taken from there."""
    if left:
        left -= len(reader.read(min(len(reader.peek()), left)))
    room = bytearray(1 << 20)
    while left:
        count = connection.recv_into(room, min(left, len(room)), socket.MSG_TRUNC)
        if not count:
            raise ConnectionError("the body ends early")
        left -= count


def answer(connection: socket.socket, body: bytes, more: str = "") -> None:
    head = f'HTTP/1.1 200 OK\r\nETag: "x"\r\n{more}Content-Length: {len(body)}\r\n\r\n'
    connection.sendall(head.encode() + body)


def main() -> int:
    file = Path(sys.argv[1])
    size, source = file.stat().st_size, os.open(file, os.O_RDONLY)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        options = {"source": source, "size": size}
        threading.Thread(target=served, args=(connection,), kwargs=options, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
