"""The counter beside a health page, as servers have one for probes.

The page says 500 for `SLOW_SECONDS` after a start, as one that still loads, and again once somebody
made the file SICK, which a start removes. Arguments are the counter's.
"""

import http.server
import os
import runpy
import sys
import threading
import time
from pathlib import Path

PORT = 8000
SLOW_SECONDS = 3.0
SICK = Path("/tmp/sick")


class Page(http.server.BaseHTTPRequestHandler):
    began = time.monotonic()

    def do_GET(self) -> None:
        well = time.monotonic() - self.began > SLOW_SECONDS and not SICK.exists()
        self.send_response(200 if well else 500)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    SICK.unlink(missing_ok=True)
    server = http.server.ThreadingHTTPServer(("", PORT), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.argv[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "counter.py")
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
