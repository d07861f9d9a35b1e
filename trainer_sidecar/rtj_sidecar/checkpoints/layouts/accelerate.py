"""Directories of `Accelerator.save_state`: model, optimizer, scheduler, `random_states_R.pkl`.

Accelerate leaves no marker. The main process writes `random_states_0.pkl` after all but the
`custom_checkpoint_J.pkl`, so a directory without it did not finish; whether a custom file is
missing only earlier saves can tell. With `total_limit` the old directories go before the new one
exists. The number in `checkpoint_K` counts saves, not steps. Names: accelerate/checkpointing.py,
accelerate/utils/fsdp_utils.py, 1.15.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rtj_sidecar.checkpoints.formats.facts import whole_number
from rtj_sidecar.checkpoints.layouts import common, deepspeed_rules, nested
from rtj_sidecar.checkpoints.layouts.base import Listing
from rtj_sidecar.checkpoints.layouts.fields import fields_of
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.layouts.guides import accelerate as guides
from rtj_sidecar.checkpoints.layouts.names import (
    NO_NUMBERS,
    Numbers,
    is_temporary,
    numbers_in,
    pattern_of,
)
from rtj_sidecar.checkpoints.layouts.torchfile import labels
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.resume_state import HAS, parts_named
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    PartFiles,
    Reason,
)

_RNG = re.compile(r"^random_states_(\d+)\.pkl$")
_CUSTOM = re.compile(r"^custom_checkpoint_(\d+)\.pkl$")
_OURS = re.compile(r"^(random_states_\d+\.pkl|pytorch_model_fsdp.*\.bin)$")
_MODELS = frozenset({"model.safetensors", "pytorch_model.bin"})
_INNER = re.compile(r"^(pytorch_model_fsdp_\d+|optimizer_\d+|pytorch_model(_\d+)?)$")
_TORCH = re.compile(
    r"^((optimizer|scheduler|sampler|pytorch_model)(_\d+)?\.bin|dl_state_dict(_\d+)?\.bin|scaler\.pt"
    r"|pytorch_model_fsdp.*\.bin|(random_states|custom_checkpoint)_\d+\.pkl)$"
)
_NUMBERED = re.compile(r"^(.*?)(?:_(\d+))?\.(?:bin|safetensors)$")
_TRAINER = re.compile(r"^(trainer_state\.json|training_args\.bin|rng_state(_\d+)?\.pth)$")
_OWN_NAMING = re.compile(r"^checkpoint_\d+$")
# What `save_state` writes before the random states: all that one killed early can hold.
_EARLY = re.compile(
    r"^((model|pytorch_model)(_\d+)?(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?"
    r"|(optimizer|scheduler|sampler|dl_state_dict)(_\d+)?\.bin|scaler\.pt"
    r"|pytorch_model_fsdp.*\.bin|(random_states|custom_checkpoint)_\d+\.pkl)$"
)


class AccelerateLayout:
    """`layout: accelerate`."""

    name = "accelerate"
    guides = guides.GUIDES

    def recognise(self, *, listing: Listing, reader: Reader) -> tuple[FoundSave, ...]:
        files = [entry for entry in listing.files if not is_temporary(entry.path)]
        roots = _roots(entry.path for entry in files)
        by_root: dict[str, list[FileEntry]] = {}
        for entry in files:
            if (root := _home(entry.path, roots)) is not None:
                by_root.setdefault(root, []).append(entry)
        lacking = _lacking(by_root)
        return tuple(
            _save(root, found, reader, lacking.get(root)) for root, found in sorted(by_root.items())
        )

    def gates(
        self, *, save: FoundSave, reader: Reader, expect: Expectations
    ) -> tuple[GateResult, ...]:
        names = {name_of(entry.path) for entry in save.files}
        if expect.whole and "random_states_0.pkl" not in names:
            detail = (
                f"{save.root_key}/random_states_0.pkl is missing: the save did not finish (a script"
                " that does not use Accelerate needs checkpoint.layout: torch)"
            )
            why = nested.NOT_LOOKED_AT
            return (
                common.failed(Gate.MARKER, Reason.MARKER_MISSING, detail),
                GateResult(Gate.CONTAINER, None, why),
                GateResult(Gate.SET, None, why),
            )
        marker, container, inner = nested.gates(save, reader=reader, expect=expect)
        by_torch = [entry for entry in save.files if _TORCH.match(name_of(entry.path))]
        container = common.not_torch(by_torch, reader) or container
        marker = marker or common.no_marker("Accelerate")
        if marker.passed is False or container.passed is False:
            return marker, container, inner or GateResult(Gate.SET, None, nested.NOT_LOOKED_AT)
        return marker, container, _set_gate(save, names, inner, expect)

    def union_gate(self, *, parts: Sequence[PartFiles], expect: Expectations) -> GateResult:
        names = {name_of(path) for path in common.union_of(parts)}
        if "random_states_0.pkl" not in names:
            detail = "no rank has random_states_0.pkl: the save did not finish"
            return common.failed(Gate.SET, Reason.MARKER_MISSING, detail)
        if missing := _missing(names, expect.demanded):
            return common.failed(Gate.SET, Reason.FILES_MISSING, missing)
        inner = nested.union_gate(parts)
        if inner is not None and inner.passed is False:
            return inner
        found = common.union_by_history(parts, expect=expect)
        if found.passed is None and expect.demanded is not None:
            return GateResult(Gate.SET, True, f"the random states of {expect.demanded} processes")
        return found


def _roots(paths: Iterable[str]) -> frozenset[str]:
    """Directories that Accelerate wrote: by its own names, by its own numbering, or because a
    sibling of the same pattern is one (a save killed early holds a model and nothing else)."""
    names: dict[str, set[str]] = {}
    inner: dict[str, set[str]] = {}
    for path in paths:
        directory = parent_of(path)
        names.setdefault(directory, set()).add(name_of(path))
        above, last = parent_of(directory), name_of(directory)
        if directory != "." and _INNER.match(last) and _of_a_strategy(path):
            inner.setdefault(above, set()).add(last)
    foreign = {d for d, own in names.items() if any(_TRAINER.match(name) for name in own)}
    sure = {d for d, own in names.items() if any(_OURS.match(name) for name in own)}
    # The model is written first; its name and the optimizer's together are Accelerate's alone.
    sure |= {d for d, own in names.items() if "optimizer.bin" in own and own & _MODELS}
    sure |= {directory for directory in inner if _INNER.match(name_of(directory)) is None}
    sure -= foreign | {"."}
    families = {(parent_of(root), pattern_of(name_of(root))) for root in sure}
    known = set(names) | set(inner)
    alike = {
        d
        for d in known - foreign - {"."}
        if (parent_of(d), pattern_of(name_of(d))) in families
        or (
            _OWN_NAMING.match(name_of(d))
            and name_of(parent_of(d)) == "checkpoints"
            and all(_EARLY.match(name) for name in names.get(d, ()))
        )
    }
    return frozenset(sure | {d for d in alike if numbers_in(name_of(d))})


def _lacking(by_root: Mapping[str, Sequence[FileEntry]]) -> dict[str, str]:
    """Directory -> a custom file that it lacks and the directories before and after it have.

    The step may stand in that very file, and without it the save cannot be put in order by steps,
    which the history of names goes by; so the numbers in the directories' names go here. Two in a
    row that lack it are believed: the script registers it no longer.
    """
    families: dict[tuple[str, str], list[tuple[int, str, set[str]]]] = {}
    for root, found in by_root.items():
        numbers = numbers_in(name_of(root))
        known = (numbers.step, numbers.epoch, numbers.weak)
        place = next((value for value in known if value is not None), None)
        if place is not None:
            custom = {n for entry in found if _CUSTOM.match(n := name_of(entry.path))}
            family = (parent_of(root), pattern_of(name_of(root)))
            families.setdefault(family, []).append((place, root, custom))
    lacking: dict[str, str] = {}
    for members in families.values():
        members.sort()
        for (_, _, before), (_, root, own), after in zip(
            members, members[1:], [*members[2:], None], strict=False
        ):
            gone = before - own if after is None else (before - own) & after[2]
            if gone:
                lacking[root] = min(gone)
    return lacking


def _of_a_strategy(path: str) -> bool:
    """A file that FSDP or DeepSpeed put into a directory of Accelerate's name for it."""
    return nested.has_dcp([path]) or deepspeed_rules.is_ours(path)


def _home(path: str, roots: frozenset[str]) -> str | None:
    """The outermost root that the file is below of."""
    parts = path.split("/")[:-1]
    above = ("/".join(parts[: depth + 1]) for depth in range(len(parts)))
    return next((directory for directory in above if directory in roots), None)


def _save(root: str, found: list[FileEntry], reader: Reader, lacking: str | None) -> FoundSave:
    numbers = numbers_in(name_of(root))
    files, facts = nested.facts(found, reader)
    step, epoch, unit = labels(numbers, {} if numbers.step is not None else _custom(files, reader))
    if numbers.step is None and numbers.epoch is not None:
        # `epoch_3` says what the script counts; a counter of a registered object may be any.
        step, epoch, unit = labels(replace(numbers, weak=None), {})
    names = [entry.path[len(root) + 1 :] for entry in files]
    optimizer = any(name.startswith("optimizer") for name in names) or "deepspeed" in facts
    if lacking is not None:
        facts["lacking"] = lacking
    if unit is not None:
        facts["unit"] = unit
    has = parts_named([n for n in names if not _CUSTOM.match(n)], optimizer=optimizer)
    if not any(_CUSTOM.match(name) for name in names):
        facts[HAS] = has
    else:
        # A registered object may be the scheduler or the loader: what is not seen is not missing.
        facts[HAS] = {part: True for part, there in has.items() if there}
    return FoundSave(
        root_key=root,
        layout=AccelerateLayout.name,
        files=files,
        step=step,
        epoch=epoch,
        full_state=optimizer,
        reused_path=not _sure(numbers),
        facts=facts,
    )


def _sure(numbers: Numbers) -> bool:
    return numbers != NO_NUMBERS and numbers.sure


def _custom(files: Sequence[FileEntry], reader: Reader) -> Mapping[str, object]:
    """`step` and `epoch` of an object that the script registered."""
    read: dict[str, object] = {}
    for entry in files:
        if _CUSTOM.match(name_of(entry.path)):
            told = fields_of(reader, entry, keep=("global_step", "step", "epoch"))
            for name, keys in (("step", ("global_step", "step")), ("epoch", ("epoch",))):
                values = [v for key in keys if (v := whole_number(told.get(key))) is not None]
                if values and name not in read:
                    read[name] = values[0]
    return read


def _set_gate(
    save: FoundSave, names: set[str], inner: GateResult | None, expect: Expectations
) -> GateResult:
    missing = _missing(names, expect.demanded, whole=expect.whole)
    if missing is None and expect.whole and (lacking := save.facts.get("lacking")):
        missing = f"{lacking} is missing, the save before it has one"
    if missing:
        detail = f"{save.root_key}: {missing}"
        return common.failed(Gate.SET, Reason.FILES_MISSING, detail)
    if inner is not None and inner.passed is False:
        return inner
    history = common.set_gate(save, expect=expect)
    if history.passed is False:
        return history
    if not expect.whole:
        return GateResult(Gate.SET, None, "the other ranks' files are on their disks")
    count = sum(1 for name in names if _RNG.match(name))
    return GateResult(Gate.SET, True, f"random states of all {count} ranks, and {history.detail}")


def _missing(names: set[str], world_size: int | None, *, whole: bool = True) -> str | None:
    """Gaps in what Accelerate numbers itself, and random states of ranks."""
    ranks = {int(m.group(1)) for name in names if (m := _RNG.match(name))}
    if whole:
        for rank in range(max(world_size or 0, max(ranks, default=-1) + 1)):
            if rank not in ranks:
                return f"random_states_{rank}.pkl is missing"
    numbered: dict[str, set[int]] = {}
    for name in names:
        found = _NUMBERED.match(name)
        if found and found.group(1) in ("optimizer", "scheduler", "model", "pytorch_model"):
            numbered.setdefault(found.group(1), set()).add(int(found.group(2) or 0))
    for stem, there in sorted(numbered.items()):
        for number in range(max(there)):
            if number not in there:
                return f"{stem}{f'_{number}' if number else ''} is missing, a later one is there"
    return None
