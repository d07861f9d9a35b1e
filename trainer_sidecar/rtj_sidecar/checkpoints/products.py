"""What a finished job leaves beside its checkpoints: the final model, reports, curves. Pure.

Everything under the path that is no checkpoint and was not there before the job. Never what may be
secret, nor what a writer left half done.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rtj_sidecar.checkpoints.foreign import is_foreign
from rtj_sidecar.checkpoints.layouts.names import is_temporary
from rtj_sidecar.checkpoints.restore_plan import paths_of
from rtj_sidecar.checkpoints.types import FileEntry, Snapshot

_NEVER = re.compile(
    r"(^|/)\.|(^|/)core(\.\d+)?$|\.(pyc|pem|key|crt|env)$|(^|/)(id_\w+|token|credentials)$"
)


def products(snapshot: Snapshot, *, foreign: Collection[str] = ()) -> tuple[FileEntry, ...]:
    """The files to ship as outputs, by path."""
    saved = {path for save in snapshot.saves for path in paths_of(save)}
    roots = tuple(f"{path}/" for path in saved)
    pointers = {pointer.path for pointer in snapshot.pointers}
    return tuple(
        entry
        for entry in snapshot.files
        if entry.path not in saved | pointers
        and not entry.path.startswith(roots)
        and not is_temporary(entry.path)
        and not _NEVER.search(entry.path)
        and not is_foreign(entry, foreign)
    )
