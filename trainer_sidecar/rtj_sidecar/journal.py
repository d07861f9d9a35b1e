"""What a sidecar must remember to go on after it was killed at any moment.

One small JSON file beside the supervisor's, replaced whole before the effect it speaks of. Must
never be needed to know what is durable (the store knows) or what is pinned (the pins know).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from rtj_api.wire import (
    Directive,
    DivergenceView,
    FailedProbe,
    LossCheck,
    ReplayView,
    Resume,
    TrialReport,
    Verdict,
    Wire,
)

from rtj_sidecar.runs.records import Parent
from rtj_sidecar.trainer.supervisor_link import write_whole


class Entry(Wire):
    """The whole journal."""

    directive: Directive | None = None  # the highest that was accepted
    done: bool = False  # what it asked for is finished
    restored_attempt: int = 0  # restore ran to its end in that attempt: never again
    here_before: list[tuple[str, str]] = Field(default_factory=list)
    """Saves (root key, generation) that lay in the directory before the go and are nobody's."""
    world_of_go: int | None = None  # pods of the attempt that was told to go last
    restored_bytes: int = 0  # fetched by it
    restore_total_bytes: int = 0
    resume: Resume | None = None  # what that attempt started from
    resume_path: str | None = None  # where the trainer finds it
    fence: int | None = None  # held by rank 0
    fence_attempt: int = 0
    next_n: int = 1  # number of the next save that is named in it
    parent: Parent | None = None  # what the attempt of this fence started from
    refused_attempt: int = 0  # it began from a save that was judged: what it saved gets no name
    passed_on: int = 0  # the attempt whose end was passed on to the kubelet
    last_durable_name: str | None = None
    last_durable_step: int | None = None
    last_durable_at: float | None = None
    probe_digest: str | None = None  # which probe the next two speak of
    probe_running: TrialReport | None = None  # as it was told: its own limit ends it, not a stall
    probe_passed: str | None = None  # the save it passed on last, in this very container
    probe_failed: dict[str, FailedProbe] = Field(default_factory=dict)  # by save, not marked yet
    lacking: dict[str, str] = Field(default_factory=dict)  # by save: which required key it lacks
    lacking_of: list[str] = Field(default_factory=list)  # the keys that were required then
    loss_band: dict[str, float] | None = None  # recorded with the save that was restored
    versions: dict[str, str] = Field(default_factory=dict)  # of the libraries that wrote it
    loss_check: LossCheck | None = None  # of the attempt that began from it
    trail: dict[str, Any] | None = None  # recorded with that save, see trainer.trail
    replay: ReplayView | None = None  # of that attempt, as loss_check
    divergence: DivergenceView | None = None  # of that attempt
    outputs_attempt: int = 0  # the attempt whose outputs are in the store
    verdicts: list[Verdict] = Field(default_factory=list)

    @property
    def attempt(self) -> int:
        return self.directive.attempt if self.directive else 0


class Journal:
    """Holds the newest entry; `write` replaces it on disk first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entry = Entry()
        self._behind = False  # the disk has an older entry than we
        self.unreadable: str | None = None
        try:
            self.entry = Entry.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            pass
        except (OSError, ValidationError, ValueError) as error:
            # Kept for a person to look at; go.json and the supervisor's journal still say what ran.
            self.unreadable = f"{path}: {error}"
            path.replace(path.with_name(f"{path.name}.bad-{int(time.time())}"))

    def write(self, **changes: object) -> Entry:
        """Raises OSError when the disk does not take it; the old entry then stays."""
        entry = self.entry.model_copy(update=changes)
        if entry != self.entry or self._behind:
            write_whole(self._path, entry.dump_json())
            self.entry, self._behind = entry, False
        return self.entry

    def note(self, **changes: object) -> None:
        """As `write`, for what can be found out again: a full disk must not stop the work."""
        try:
            self.write(**changes)
        except OSError:
            self.entry = self.entry.model_copy(update=changes)
            self._behind = True
