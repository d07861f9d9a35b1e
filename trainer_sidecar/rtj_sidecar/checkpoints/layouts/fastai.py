"""fastai: `models/<name>_<epoch>.pth` of `SaveModelCallback(every_epoch=True)`, and `learn.save`.

The number in a name is the epoch; no position is in the file. Without `with_opt=True`, which is not
fastai's default, a file is weights alone, like any other of torch.save: `torchfile` has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.fields import fields_of
from rtj_sidecar.checkpoints.layouts.guides import fastai as guides
from rtj_sidecar.checkpoints.layouts.names import is_temporary, pattern_of
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    GateResult,
    PartFiles,
)

_KEYS = {"model", "opt"}
_EPOCH = re.compile(r"_(\d+)\.pth$")
_HYPERS = "opt.hypers"
"""What fastai's optimizers call their settings: others write `param_groups`."""


class FastaiLayout:
    """`layout: fastai`."""

    name = "fastai"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        whole, broken = [], []
        for entry in listing.files:
            if entry.path.endswith(".pth") and not is_temporary(entry.path):
                peek = common.peek_of(reader, entry)
                keys = peek.facts.get("keys") if peek is not None else None
                if not isinstance(keys, list):
                    broken.append(entry)
                elif set(keys) == _KEYS and fields_of(reader, entry, keep=(_HYPERS,)):
                    whole.append(entry)
        # A torn file is fastai's where others of its name are.
        names = {pattern_of(entry.path) for entry in whole}
        torn = [entry for entry in broken if pattern_of(entry.path) in names]
        return tuple(
            [_save(entry, whole=True) for entry in whole]
            + [_save(entry, whole=False) for entry in torn]
        )

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        return (
            common.no_marker("fastai"),
            common.container_gate(save, reader),
            common.set_gate(save, expect=expect),
        )

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        return common.union_by_history(parts, expect=expect)


def _save(entry: FileEntry, *, whole: bool) -> FoundSave:
    # `SaveModelCallback` appends the epoch to whatever name it was given.
    named = _EPOCH.search(entry.path)
    has = {"optimizer": True, "scheduler": False, "rng": False, "loader": False}
    return FoundSave(
        root_key=entry.path,
        layout=FastaiLayout.name,
        files=(entry,),
        epoch=int(named[1][:18]) if named else None,
        full_state=True if whole else None,
        reused_path=True,
        facts={**({"unit": "epoch"} if named else {}), **({HAS: has} if whole else {})},
    )
