"""What becomes of a run's older saves: marked, removed, archived; and the index told of it.

Must never do more in one call than can be done again after a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from rtj_sidecar.runs.archive import Archived, NoArchive, archive_next
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import FenceLost
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.index import write_index
from rtj_sidecar.runs.keeping import Keep
from rtj_sidecar.runs.retain import Retained, retain


class Tending:
    """`history()`: the run's records, read now; `forget(name)`: its manifest is gone."""

    def __init__(
        self,
        context: Context,
        *,
        history: Callable[[], History],
        forget: Callable[[str], None],
    ) -> None:
        self._context = context
        self._history = history
        self._forget = forget

    def reindex(self) -> None:
        """`manifest.json` after a mark that a person made."""
        write_index(self._context, self._history())

    def retain(
        self, *, fence: int, keep: Keep, in_use: Collection[str] = (), delete: bool = True
    ) -> Retained | FenceLost:
        """Mark the saves that `keep` does not keep, delete what was marked an hour ago."""
        done = retain(
            self._context, self._history(), fence=fence, keep=keep, in_use=in_use, delete=delete
        )
        if isinstance(done, Retained) and (done.marked or done.deleted):
            for name in done.deleted:
                self._forget(name)
            write_index(self._context, self._history())
        return done

    def archive(
        self,
        *,
        fence: int,
        keep: Keep,
        in_use: Collection[str] = (),
        cancel: threading.Event | None = None,
    ) -> Archived | NoArchive | FenceLost | None:
        """Move the oldest save that `keep` lets go to a slower class; None: there is none."""
        done = archive_next(
            self._context, self._history(), fence=fence, keep=keep, in_use=in_use, cancel=cancel
        )
        if isinstance(done, Archived):
            write_index(self._context, self._history())
        return done
