"""Any directory or file that the user names by `checkpoint.include`, or `layout: generic`.

It proves what single files can prove of themselves and records the rest as unproved: such a save
is Settled at best. A step must stand in a name or in the content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import group, name_of
from rtj_sidecar.checkpoints.layouts.guide import Guide
from rtj_sidecar.checkpoints.layouts.guides.generic import GUIDES
from rtj_sidecar.checkpoints.layouts.torchfile import labels
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS, held_by_name, merged
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    GateResult,
    PartFiles,
)


@dataclass(frozen=True, slots=True)
class GenericLayout:
    """`layout: generic`. `include` are globs on relative paths (`*` crosses `/`); none: all."""

    include: tuple[str, ...] = ()
    name: str = "generic"
    guides: tuple[Guide, ...] = GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        globs = [variant for glob in self.include for variant in _variants(glob)]

        def is_seed(entry: FileEntry) -> bool:
            if not globs:
                return True
            names = (entry.path, name_of(entry.path), *_parents(entry.path))
            return any(fnmatchcase(name, glob) for glob in globs for name in names)

        saves = []
        for found in group(listing.files, is_seed=is_seed):
            facts = _facts(found.files, reader)
            step, epoch, unit = labels(found.numbers, facts)
            if step is None and epoch is None:
                continue
            full, loss = facts.get("full_state"), facts.get("loss")
            saves.append(
                FoundSave(
                    root_key=found.root,
                    layout=self.name,
                    files=found.files,
                    step=step,
                    epoch=epoch,
                    loss=loss if isinstance(loss, float) else None,
                    full_state=full if isinstance(full, bool) else None,
                    reused_path=not found.numbers.sure,
                    facts={"unit": unit, HAS: _held(found.files, facts)},
                )
            )
        return tuple(saves)

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        return (
            common.no_marker("a generic save"),
            common.container_gate(save, reader),
            common.set_gate(save, expect=expect),
        )

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        return common.union_by_history(parts, expect=expect)


def _held(files: Sequence[FileEntry], facts: Mapping[str, object]) -> dict[str, bool]:
    """By file names what is there; what is not there only where one file's keys could be read."""
    read = facts.get(HAS)
    named = held_by_name([name_of(entry.path) for entry in files] if len(files) > 1 else [])
    return merged([named, read if isinstance(read, dict) else {}])


def _variants(glob: str) -> tuple[str, ...]:
    """`epoch_*/` means the directory, `./x` means `x`, and `**/x` also the one at the top."""
    plain = glob.removeprefix("./").rstrip("/")
    return (plain, plain.removeprefix("**/")) if plain.startswith("**/") else (plain,)


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _facts(files: Sequence[FileEntry], reader: Reader) -> dict[str, object]:
    """Step, epoch and loss from small JSON files and torch's own files among the first 64."""
    facts: dict[str, object] = {}
    for entry in files[:64]:
        try:
            if entry.path.endswith(".json") and entry.size < 1 << 20:
                keys = ("step", "global_step", "iteration", "epoch", "loss")
                found = dict(common.json_of(reader, entry, keep=keys).facts)
                for name in ("global_step", "iteration"):
                    found.setdefault("step", found.get(name))
            else:
                peek = common.peek_of(reader, entry)
                found = dict(peek.facts) if peek else {}
        except (OSError, UnsafePathError):
            continue
        facts = {**{k: v for k, v in found.items() if v is not None}, **facts}
    return facts
