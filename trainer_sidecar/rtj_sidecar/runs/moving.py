"""The bytes of one rank, into a run and out of it: parts, saves, outputs, small texts.

The one place that all transfers of a run pass. Must never decide what a save is worth, and never
write a record that another decision rests on, but a rank's own part.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from rtj_api.reasons import Reason

from rtj_sidecar.runs import fetch as fetching
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fetch import Fetched, FetchFailed
from rtj_sidecar.runs.outputs import put_outputs
from rtj_sidecar.runs.peers import Peers
from rtj_sidecar.runs.records import FileRecord, OutputsRecord, PartRecord, SaveFacts, ShipRecord
from rtj_sidecar.runs.reuse import Earlier, earlier_of
from rtj_sidecar.runs.sent import Sent
from rtj_sidecar.runs.upload import LocalFile, upload_part
from rtj_sidecar.stores.base import IfAbsent, Progress, StoreProblem


class Moving:
    """`wanted(name)`: what this rank restores of a committed save. See `Run` for the rest."""

    def __init__(self, context: Context, *, wanted: Callable[[str], list[FileRecord]]) -> None:
        self._context = context
        self._wanted = wanted
        self._sent = Sent()

    def upload_part(
        self,
        ship: ShipRecord,
        *,
        files: Sequence[LocalFile],
        save: SaveFacts,
        after: str | None = None,
        progress: Progress | None = None,
        kept: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> PartRecord:
        """Upload this rank's files of a ship, then its part record.

        `after`: a committed save; files of which this rank's part has the same bytes are copied
        inside the store, where it can, and not sent. `progress` counts what is sent, `kept` the
        rest.
        Raises SourceChanged when a file is not what it was: then `answer_none`. After a Cancelled
        or StoreProblem call it again; what was answered once stands.
        """
        return upload_part(
            self._context,
            ship,
            files=files,
            save=save,
            earlier=self._earlier(after),
            tried=self._sent,
            progress=progress,
            kept=kept,
            cancel=cancel,
        )

    def _earlier(self, name: str | None) -> Earlier:
        save = keys.parse_name(name) if name is not None else None
        if save is None:
            return Earlier()
        # It only spares bytes: whatever is wrong with the store or that record shows elsewhere.
        with contextlib.suppress(StoreProblem):
            return earlier_of(self._context, save)
        return Earlier()

    def fetch(
        self,
        name: str,
        dest: Path,
        *,
        files: Sequence[FileRecord] | None = None,
        peers: Sequence[str] | Peers = (),
        from_store: bool = True,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> Fetched | FetchFailed:
        """Bring a save's files below `dest`, peers (`http://ip:port`) before the store.

        `files` default to `wanted(name)`. Hashed on the way and fsynced; a file that is there with
        the right hash is kept. A save that is not committed: pass `files` (a peer tells their
        hashes) and `from_store=False`. `FetchFailed.finding` set: the save is bad, `mark` it.
        """
        records = self._wanted(name) if files is None else files
        if not records:
            return FetchFailed(
                Reason.CHECKPOINT_OBJECT_MISSING,
                f"{name} has no manifest in {self._context.store.url}/{self._context.run_id}",
            )
        return fetching.fetch(
            self._context,
            name,
            records,
            dest,
            peers=peers,
            from_store=from_store,
            progress=progress,
            cancel=cancel,
        )

    def put_outputs(
        self,
        *,
        fence: int,
        attempt: int,
        files: Sequence[LocalFile],
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> OutputsRecord:
        """Ship what this rank's trainer left beside its checkpoints, then the list of it.

        Raises SourceChanged, Cancelled, OSError, StoreProblem. May be done again.
        """
        return put_outputs(
            self._context,
            fence=fence,
            attempt=attempt,
            files=files,
            progress=progress,
            cancel=cancel,
        )

    def put_text(self, key: str, text: str, *, once: bool = False) -> None:
        """A small text beside the records: `logs/<attempt>/<rank>.txt` and the like."""
        self._context.put(key, text.encode(), condition=IfAbsent() if once else None)
