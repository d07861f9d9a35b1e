"""What this gang makes of a save: whether it can load it, and which files a rank needs of it.

Must never leave a file out that a loader may open; see `checkpoints.needs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rtj_api.reasons import Reason
from rtj_api.wire import Candidate

from rtj_sidecar.checkpoints.needs import Gang, needed, refuses_world
from rtj_sidecar.runs import ships
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import FileRecord, ManifestRecord
from rtj_sidecar.runs.vet import wanted_by


class Suiting:
    """`gang` (who loads what) and `processes` (of all pods together) are set with each attempt,
    where they are known for certain. `manifest_of(name)`: None where it is not committed."""

    def __init__(
        self, context: Context, *, manifest_of: Callable[[str], ManifestRecord | None]
    ) -> None:
        self._context = context
        self._manifest_of = manifest_of
        self.gang: Gang | None = None
        self.processes: int | None = None

    def fitting(self, found: Candidate, *, facts: Mapping[str, object]) -> Candidate:
        """Invalid where the framework refuses a save of these facts with this gang's size."""
        if self.processes is None or found.invalid is not None:
            return found
        why = refuses_world(facts=facts, processes=self.processes)
        if why is None:
            return found
        told = {"invalid": str(Reason.WORLD_SIZE_REFUSED), "invalid_message": why}
        return found.model_copy(update=told)

    def wanted(self, name: str) -> list[FileRecord]:
        """What this rank restores of a committed save; empty where it is not committed."""
        manifest = self._manifest_of(name)
        if manifest is None:
            return []
        files = wanted_by(manifest, self._context.rank)
        opened = needed(
            [file.path for file in files],
            facts=manifest.facts,
            was=manifest.world_size,
            gang=self.gang,
            wrote=lambda: self._wrote(manifest),
        )
        return [file for file in files if file.path in opened]

    def _wrote(self, manifest: ManifestRecord) -> list[str]:
        """What this rank's pod wrote of that save; nothing of one copied from elsewhere."""
        found = ships.read_part(
            self._context, SaveId(manifest.fence, manifest.n), self._context.rank
        )
        return [file.path for file in found.files] if found is not None else []
