"""An OAuth token endpoint that gives one answer, as an identity provider would over HTTP.

For clients that fetch a token before they talk to a store. Must never be reached but on loopback.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def token_server(status: int, answer: Mapping[str, object]) -> Iterator[str]:
    """Its URL; every POST gets `status` and `answer` as JSON."""
    body = json.dumps(answer).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
