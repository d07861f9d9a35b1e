"""Required keys of a save that was made before anybody required them: looked for once restored.

Newer saves say by their facts what they hold, and are not even chosen. Rank 0 only. Must never
condemn: what is remembered here counts for this pod and these keys alone.
"""

from __future__ import annotations

from pathlib import Path

from rtj_api.reasons import Reason
from rtj_api.wire import Resume

from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.required import lacking, required_of
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.failing import AttemptFailed
from rtj_sidecar.station import Station, log


async def check_keys(at: Station, resume: Resume, path: str | None) -> None:
    """Raises AttemptFailed where a required key is certainly not in the restored save."""
    patterns = at.site.config.required_keys
    if not patterns or at.site.config.rank != 0 or resume.name is None or path is None:
        return
    found = await at.on_disk(_look, at, Path(path), patterns)
    if found is None:
        return
    key, where = found
    message = f"{where} has no {key!r}, which checkpoint.validation.requiredKeys asks for"
    known = at.journal.entry.lacking if at.journal.entry.lacking_of == patterns else {}
    at.journal.note(lacking={**known, resume.name: message}, lacking_of=patterns)
    at.tell_candidates()
    raise AttemptFailed(
        Reason.REQUIRED_KEY_MISSING,
        f"{resume.name}: {message}: an older one is tried",
        retrying=True,
    )


def _look(at: Station, path: Path, patterns: list[str]) -> tuple[str, str] | None:
    root = "." if path == at.site.path else str(path.relative_to(at.site.path))
    try:
        judged = at.directory.look(writers=Writers(gone=True)).judged
        save = next((save for save, _ in judged if save.root_key == root), None)
        if save is None:
            return None
        told = required_of(save, at.directory.reader, patterns=patterns).as_fact()
    except (OSError, UnsafePathError, DirectoryProblem) as problem:
        log.warning("the names in %s are not read: %s", path, problem)
        return None
    return lacking(told, patterns=patterns)
