"""Required keys of a save that was made before anybody required them: looked for once restored.

Newer saves say by their facts what they hold, and are not even chosen. Rank 0 only. Must never
condemn: what is remembered here counts for this pod and these keys alone.
"""

from __future__ import annotations

from pathlib import Path

from rtj_api.reasons import Reason
from rtj_api.rules.trials import ALIKE
from rtj_api.wire import Resume

from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.required import lacking, required_of
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.failing import AttemptFailed
from rtj_sidecar.station import Station, log

_SHOWN = 5


async def check_keys(at: Station, resume: Resume, path: str | None) -> None:
    """Raises AttemptFailed where a required key is certainly not in the restored save.

    Each costs a whole restore, so after a few that lack the same key no older one is tried.
    """
    patterns = at.site.config.required_keys
    if not patterns or at.site.config.rank != 0 or resume.name is None or path is None:
        return
    found = await at.on_disk(_look, at, Path(path), patterns)
    if found is None:
        return
    key, where = found
    message = f"{where} has no {key!r}, which checkpoint.validation.requiredKeys asks for"
    known = at.journal.entry.lacking if at.journal.entry.lacking_of == patterns else {}
    known = {**known, resume.name: message}
    at.journal.note(lacking=known, lacking_of=patterns)
    at.tell_candidates()
    alike = [name for name, why in known.items() if f" has no {key!r}, which" in why]
    if len(alike) >= ALIKE:
        raise AttemptFailed(
            Reason.REQUIRED_KEY_MISSING,
            f"{len(alike)} saves ({', '.join(alike[-_SHOWN:])}) lack {key!r}, the last: {message}. "
            "Nothing was marked, and no older one is tried: correct requiredKeys, or ask for a "
            'try of the next with the annotation resumable-training.dev/request: {"id": "1", '
            '"action": "restart"}',
        )
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
