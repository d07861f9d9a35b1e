"""DeepSpeed's own directories: one tag directory (`global_stepN`) with every rank's files.

No marker: `latest` is written before slower ranks have written theirs. The model states say how
many ranks there were, and so which files there must be. The rules are `deepspeed_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rtj_sidecar.checkpoints.formats.facts import number
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts import deepspeed_rules as rules
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.layouts.guides import deepspeed as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary, numbers_in
from rtj_sidecar.checkpoints.layouts.stated import POINTERS, beside, text_pointer
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
    Reason,
)

LATEST = "latest"


class DeepSpeedLayout:
    """`layout: deepspeed`."""

    name = "deepspeed"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        directories = frozenset(rules.tag_directories(entry.path for entry in listing.files))
        below: dict[str, list[FileEntry]] = {directory: [] for directory in directories}
        for entry in listing.files if directories else ():
            home = _home(entry.path, directories)
            if home is not None and not is_temporary(entry.path):
                below[home].append(entry)
        tags = rules.tag_facts(listing.files, reader)
        return tuple(_save(tag, tuple(below[tag.directory])) for tag in tags)

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        detail = f"`{LATEST}` is written before slower ranks have ended: a hint"
        container = common.container_gate(save, reader)
        if container.passed is False:
            why = "not looked at: an earlier gate failed"
            return GateResult(Gate.MARKER, None, detail), container, GateResult(Gate.SET, None, why)
        whole = rules.set_gate(rules.tag_facts(save.files, reader), whole=expect.whole)
        return GateResult(Gate.MARKER, None, detail), container, whole

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        found = rules.union_gate(parts)
        if found is None:
            return common.failed(Gate.SET, Reason.FILES_MISSING, "no rank has model states")
        return found


def _home(path: str, directories: frozenset[str]) -> str | None:
    """The innermost tag directory that the file is below of; in `.` only DeepSpeed's own names."""
    above = path.rpartition("/")[0]
    while above:
        if above in directories:
            return above
        above = above.rpartition("/")[0]
    return "." if "." in directories and "/" not in path and rules.is_ours(path) else None


def _save(tag: rules.TagFacts, files: tuple[FileEntry, ...]) -> FoundSave:
    numbers = numbers_in(name_of(tag.directory)) if tag.directory != "." else numbers_in("")
    step = tag.number("global_steps")
    facts: dict[str, object] = {"unit": "step", "deepspeed": rules.facts_for_union((tag,))}
    if tag.told:
        facts[HAS] = {
            "optimizer": tag.has_optimizer,
            "scheduler": tag.told.get("lr_scheduler") is not None,
            # DeepSpeed puts no RNG state into its files; the loss scaler is in the optimizer's.
            "rng": False,
            "loader": tag.told.get("data_sampler") is not None,
        }
        facts["world_size"] = (tag.number("dp_world_size") or 1) * (
            tag.number("mp_world_size") or 1
        )
    if tag.directory != ".":
        where = beside(tag.directory, LATEST)
        facts[POINTERS] = [text_pointer(where, name_of(tag.directory))]
    return FoundSave(
        root_key=tag.directory,
        layout=DeepSpeedLayout.name,
        files=files,
        step=step if step is not None else numbers.step,
        epoch=tag.number("epoch") if tag.number("epoch") is not None else numbers.epoch,
        loss=number(tag.told.get("loss")),
        full_state=tag.has_optimizer if tag.told else None,
        reused_path=not numbers.sure,
        facts=facts,
    )
