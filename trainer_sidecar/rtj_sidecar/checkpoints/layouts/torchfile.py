"""Files of torch.save, alone, in step-numbered sets, or together in a numbered directory.

`ckpt_10.pt`, `epoch=1-step=20.ckpt`, `step_10/{model,optimizer}.pt`, `last.pt`. The step in the
content goes before the one in the name. A file of a fixed name that holds the step of a numbered
save (`last.pt`) is an alias of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rtj_sidecar.checkpoints.formats.sniff import TORCH_SUFFIXES
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.grouping import Group, group, name_of, parent_of
from rtj_sidecar.checkpoints.layouts.guides import torchfile as guides
from rtj_sidecar.checkpoints.layouts.names import Numbers
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS, held_by_name, merged
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    GateResult,
    PartFiles,
)

_PLAIN = (".pt", ".pth", ".ckpt")
_ACCESSORY = re.compile(r"^(training_args|rng_state|scheduler|scaler|random_states)")
_MOST_PEEKS = 256
"""Files of one save that are looked into for facts; all of them are checked when it is judged."""


class TorchFileLayout:
    """`layout: torch`."""

    name = "torch"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        def is_seed(entry: FileEntry) -> bool:
            if entry.path.endswith(_PLAIN):
                return True
            # .bin and .tar are names that other things bear too: only torch's own content counts.
            if not entry.path.endswith(TORCH_SUFFIXES):
                return False
            peek = common.peek_of(reader, entry)
            return peek is not None and peek.format.startswith("torch")

        groups = group(listing.files, is_seed=is_seed)
        numbered = [_save(found, reader) for found in groups if found.numbers or found.directory]
        fixed = [_save(found, reader) for found in groups if not found.numbers]
        fixed = [save for save in fixed if not _directory(save) and _is_save(save)]
        return with_aliases(numbered, fixed)

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        return (
            common.no_marker("torch.save"),
            common.container_gate(save, reader),
            common.set_gate(save, expect=expect),
        )

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        return common.union_by_history(parts, expect=expect)


def labels(
    numbers: Numbers, facts: Mapping[str, object]
) -> tuple[int | None, int | None, str | None]:
    """(step, epoch, unit of the number in the name): content before name, epoch before guess.

    `unit` is "step", "epoch", or "number" where only a number of unknown unit is known.
    """
    step, epoch = facts.get("step"), facts.get("epoch")
    read_step = step if isinstance(step, int) else None
    read_epoch = epoch if isinstance(epoch, int) else None
    if read_step is not None:
        return read_step, read_epoch if read_epoch is not None else numbers.epoch, "step"
    if numbers.step is not None:
        return numbers.step, read_epoch if read_epoch is not None else numbers.epoch, "step"
    if read_epoch is not None or numbers.epoch is not None:
        return None, read_epoch if read_epoch is not None else numbers.epoch, "epoch"
    return numbers.weak, None, "number" if numbers.weak is not None else None


def _save(found: Group, reader: Reader) -> FoundSave:
    facts: dict[str, object] = {}
    full: bool | None = None
    torn = False
    # A lone file's own name says nothing of what is in it.
    names = [name_of(entry.path) for entry in found.files] if len(found.files) > 1 else []
    held = [held_by_name(names)]
    for entry in found.seeds[:_MOST_PEEKS]:
        peek = common.peek_of(reader, entry)
        if peek is None or peek.passed is False:
            torn = True
            continue
        has = peek.facts.get("full_state")
        full = True if has or full else (has if isinstance(has, bool) else full)
        told = peek.facts.get(HAS)
        held += [told] if isinstance(told, dict) else []
        facts = {**peek.facts, **facts}
    if any(name_of(entry.path).lower().startswith("optim") for entry in found.seeds):
        full = True
    step, epoch, unit = labels(found.numbers, facts)
    loss = facts.get("loss")
    kept: dict[str, object] = {}
    kept |= {
        key: facts[key] for key in ("keys", "key_count", "best", "loss_not_finite") if key in facts
    }
    kept[HAS] = merged(held)
    if unit is not None:
        kept["unit"] = unit
    return FoundSave(
        root_key=found.root,
        layout=TorchFileLayout.name,
        files=found.files,
        step=step,
        epoch=epoch,
        loss=loss if isinstance(loss, float) else None,
        full_state=None if torn and not full else full,
        reused_path=not found.numbers.sure,
        facts=kept,
    )


def _directory(save: FoundSave) -> bool:
    return all(entry.path != save.root_key for entry in save.files)


def _is_save(save: FoundSave) -> bool:
    """A lone file of a fixed name is a save if it states a step or epoch, holds an optimizer, or
    cannot be read (a torn one must be seen as torn); weights without a step are an output."""
    if _ACCESSORY.match(name_of(save.root_key)):
        return False
    readable = save.full_state is not None or "keys" in save.facts
    labelled = save.step is not None or save.epoch is not None
    return labelled or save.full_state is True or not readable


def with_aliases(numbered: list[FoundSave], fixed: list[FoundSave]) -> tuple[FoundSave, ...]:
    """The numbered saves, those of a fixed name that hold the same position as their aliases, and
    the rest of those as saves of their own."""
    saves = list(numbered)
    # Names that mean "the newest" or plainly the checkpoint lead; "best" rides along.
    for save in sorted(
        fixed, key=lambda found: ("best" in name_of(found.root_key), found.root_key)
    ):
        for at, other in enumerate(saves):
            labelled = save.step is not None or save.epoch is not None
            same = (save.step, save.epoch) == (other.step, other.epoch)
            # Weights saved apart (`final.pt`) may come long after the full state was shipped: as
            # an alias they would never be shipped at all.
            same = same and not (other.full_state and not save.full_state)
            if labelled and same and parent_of(save.root_key) == parent_of(other.root_key):
                saves[at] = replace(other, aliases=other.aliases + save.files)
                break
        else:
            saves.append(save)
    return tuple(saves)
