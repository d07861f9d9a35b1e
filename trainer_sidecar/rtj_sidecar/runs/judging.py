"""What a run's saves are worth: proved, examined, condemned; and the evidence.

A verdict is a mark beside the save, and stands for everyone. Must never mark a save that only
could not be reached, and never change one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rtj_api.reasons import Reason
from rtj_api.rules.resume import HOW_TO_RESTORE
from rtj_api.wire import Candidate

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.index import write_index
from rtj_sidecar.runs.marks import mark
from rtj_sidecar.runs.records import ManifestRecord, MarkKind, MarkRecord
from rtj_sidecar.runs.verify import Finding, check_files
from rtj_sidecar.runs.vet import vet
from rtj_sidecar.stores.base import Progress


class Judging:
    """`manifest_of(name)`, `history()`: the run's records, as `Run` reads them."""

    def __init__(
        self,
        context: Context,
        *,
        manifest_of: Callable[[str], ManifestRecord | None],
        history: Callable[[], History],
    ) -> None:
        self._context = context
        self._manifest_of = manifest_of
        self._history = history

    def why_invalid(self, history: History, name: str) -> str | None:
        """The evidence against a save: file, expected, got; None where nothing is known."""
        save = keys.parse_name(name)
        if save is None:
            return None
        found = history.condemned(save)
        if found is not None:
            return found.message
        if history.archived(save):
            return f"{name} lies in an archive of the store. {HOW_TO_RESTORE}"
        return history.broken.get(keys.manifest_key(save))

    def marks(self) -> frozenset[str]:
        """The keys of all marks there are: another one is news."""
        return frozenset(self._context.keys(keys.MARKS))

    def refused(self, history: History, name: str) -> tuple[str, str] | None:
        """(reason, message) why nobody may begin from it: its verdict, or that it is given up."""
        save = keys.parse_name(name)
        if save is None:
            return None
        found = history.condemned(save)
        if found is not None and found.kind != MarkKind.DROPPED:
            return found.reason, f"{name} was found {found.kind}: {found.message}"
        if history.deleted(save):
            return Reason.RESTORE_FAILED, f"{name} was given up by retention, and its data goes"
        return None

    def vet(
        self,
        candidates: Sequence[Candidate],
        *,
        pinned: Collection[str] = (),
        incoming: Path | None = None,
        most: int | None = None,
        fence: int | None = None,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> list[Candidate]:
        """Prove candidates, newest first, until one is whole; bad ones get marked `invalid`.

        `incoming` given: a save that is not `pinned` is fetched to `incoming/<name>/` and hashed
        on the way, so that `fetch` to the same place moves nothing again; unless that were more
        than `most` bytes.
        """
        judged = vet(
            self._context,
            candidates,
            manifest_of=self._manifest_of,
            pinned=pinned,
            incoming=incoming,
            most=most,
            fence=fence,
            progress=progress,
            cancel=cancel,
        )
        if list(judged) != list(candidates):
            write_index(self._context, self._history())
        return judged

    def examine(
        self, name: str, *, deep: bool = False, cancel: threading.Event | None = None
    ) -> list[Finding]:
        """What is wrong with a committed save in the store; changes nothing.

        `deep` reads every byte; else sizes and the store's own checksums are compared.
        """
        manifest = self._manifest_of(name)
        if manifest is None:
            return []
        return check_files(self._context, manifest.files, read_all=deep, cancel=cancel)

    def mark(
        self,
        name: str,
        *,
        kind: MarkKind,
        reason: Reason | str,
        message: str,
        evidence: Mapping[str, Any] | None = None,
        fence: int | None = None,
    ) -> MarkRecord | None:
        """Add a verdict to a save; None where `name` is no save's name."""
        save = keys.parse_name(name)
        if save is None:
            return None
        return mark(
            self._context,
            save,
            kind=kind,
            reason=reason,
            message=message,
            evidence=evidence,
            fence=fence,
        )
