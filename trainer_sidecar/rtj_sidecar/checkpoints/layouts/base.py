"""What a layout is: one framework's way of putting a save on disk.

A layout recognises saves in a listing, judges the commit marker, the containers and the
completeness of the set, and says which safe facts it read. It never executes what it reads,
never writes, and knows no store. A new framework is one more file beside this one, its guide in
`layouts.guides`, and one line in `layouts.__init__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rtj_sidecar.checkpoints.layouts.guide import Guide
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    GateResult,
    LinkEntry,
    PartFiles,
)


@dataclass(frozen=True, slots=True)
class Listing:
    """The files that no earlier layout has claimed, sorted by path, and every link."""

    files: tuple[FileEntry, ...]
    links: tuple[LinkEntry, ...] = ()


class Layout(Protocol):
    """One framework's layout. Instances are stateless."""

    @property
    def name(self) -> str:
        """The value of `checkpoint.layout` that selects it, and of `FoundSave.layout`."""
        ...

    @property
    def guides(self) -> tuple[Guide, ...]:
        """At least one: what its users must know. `docs/frameworks.md` is made of them."""
        ...

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        """The saves in this listing, whole or torn. Must tolerate files vanishing meanwhile."""
        ...

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        """The gates marker, container and set, each once, for the save as it is on this disk.

        Raises FileNotFoundError or OSError where a file is gone or unreadable.
        """
        ...

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        """The set gate over all ranks' parts together, from their records alone (no disk). Passed
        only where it is certain that no rank's share is missing, None where nobody can tell."""
        ...
