"""What chat, pager and mail servers are to an Alertmanager: they take a message and keep it.

All on 127.0.0.1, each a few lines of its real protocol. Must never send anything on.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_string
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Inbox:
    """`posted`: (path, body) of each HTTP message, in order; `mails`: each mail, parsed."""

    http: str
    smtp: str
    posted: list[tuple[str, Any]] = field(default_factory=list)
    mails: list[Message] = field(default_factory=list)

    def at(self, path: str) -> list[Any]:
        return [body for where, body in list(self.posted) if where == path]


@contextlib.contextmanager
def inbox() -> Iterator[Inbox]:
    """Every path takes JSON by POST; the mail server takes any sender and recipient."""
    made = Inbox(http="", smtp="")

    class Web(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.posted.append((self.path, json.loads(body)))
            self.send_response(202 if "pagerduty" in self.path else 200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    class Mail(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 mail")
            while line := self.rfile.readline().decode().strip():
                verb = line.upper().split()[0]
                if verb == "DATA":
                    self._say("354 go on")
                    made.mails.append(message_from_string(self._data()))
                self._say("221 bye" if verb == "QUIT" else "250 ok")
                if verb == "QUIT":
                    return

        def _data(self) -> str:
            lines = []
            while (line := self.rfile.readline().decode()).rstrip("\r\n") != ".":
                lines.append(line)
            return "".join(lines)

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Web) as web,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as mail,
    ):
        made.http = f"http://127.0.0.1:{web.server_address[1]}"
        made.smtp = f"127.0.0.1:{mail.server_address[1]}"
        mail.daemon_threads = True
        for server in (web, mail):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            web.shutdown()
            mail.shutdown()
