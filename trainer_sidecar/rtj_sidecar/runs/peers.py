"""Files from the other pods of the gang, before the store is asked.

A peer is asked for what it is said to have, its bytes are hashed as they come, and one that lied,
broke off, stood still or was slow is not asked again in this fetch. Must never keep a byte that is
not proved, and never wait for a slow peer while there is another place to have a file from.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from rtj_api.contract import PATH_SAVES

from rtj_sidecar.runs.records import FileRecord
from rtj_sidecar.stores.base import Progress, check_cancel
from rtj_sidecar.stores.local import BLOCK

TIMEOUT_SECONDS = 10.0  # for an answer, and for each block of it
PATIENCE_SECONDS = 5.0  # before a peer's speed is judged
SLOW_BYTES_PER_SECOND = 1 << 20


class _NowhereElse(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other error: who asks may not be sent elsewhere."""

    def redirect_request(self, *_: object) -> None:
        return None


class Peers:
    """`urls`: `http://ip:port`, tried in order. `holds`: path -> those that are known to have it;
    None: nobody was asked, so each is tried. `headers` go with each request. Used from several
    threads."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        holds: Mapping[str, Sequence[str]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._urls = tuple(urls)
        self._headers = dict(headers or {})
        self._holds = holds
        self._shunned: set[str] = set()

    def __len__(self) -> int:
        return len(self._urls)

    @property
    def shunned(self) -> frozenset[str]:
        """Those that are not asked any more."""
        return frozenset(self._shunned)

    def give(
        self,
        name: str,
        file: FileRecord,
        path: Path,
        *,
        has_other: bool,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> bool:
        """Whether some peer gave exactly the expected bytes, which are on the disk then.

        `has_other`: the store has it too. Raises Cancelled, OSError (of the local file).
        """
        asked = self._urls if self._holds is None else self._holds.get(file.path, ())
        known = [url for url in asked if url not in self._shunned]
        for at, url in enumerate(known):
            may_be_slow = not has_other and at == len(known) - 1
            if self._from(url, name, file, path, may_be_slow, progress, cancel):
                return True
        return False

    def _from(
        self,
        url: str,
        name: str,
        file: FileRecord,
        path: Path,
        may_be_slow: bool,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> bool:
        where = f"{url}{PATH_SAVES}/{name}/files/{urllib.parse.quote(file.path)}"
        digest, count, begun = hashlib.sha256(), 0, time.monotonic()
        try:
            # The pod network, never a proxy of the environment.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NowhereElse)
            request = urllib.request.Request(where, headers=self._headers)
            answer = opener.open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError:
            return False  # it has no such file: that says nothing against its others
        except (OSError, http.client.HTTPException, ValueError):
            self._shunned.add(url)
            return False
        with answer, path.open("wb") as out:
            while count <= file.size:
                check_cancel(cancel)
                try:
                    # What has come, not a whole block: a drip must not hold this up.
                    block = answer.read1(BLOCK)
                except (OSError, http.client.HTTPException):
                    break
                if not block:
                    break
                digest.update(block)
                count += len(block)
                out.write(block)
                if progress:
                    progress(len(block))
                spent = time.monotonic() - begun
                is_slow = spent > PATIENCE_SECONDS and count < spent * SLOW_BYTES_PER_SECOND
                if is_slow and not may_be_slow and count < file.size:
                    break
            if (count, digest.hexdigest()) == (file.size, file.sha256):
                out.flush()
                os.fsync(out.fileno())
                return True
        if progress:
            progress(-count)
        self._shunned.add(url)
        path.unlink(missing_ok=True)
        return False
