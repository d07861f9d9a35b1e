"""Which files a legacy Megatron directory must hold, by the grid that its arguments state. Pure.

Names: `get_checkpoint_name` of megatron/training/checkpointing.py: `mp_rank_TT`, `_PPP` where the
pipeline is larger than one, `_EEE` where experts are split.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from rtj_sidecar.checkpoints.formats.facts import whole_number

MODEL = "model_optim_rng.pt"
OPTIMIZER = "distrib_optim.pt"
_PART = re.compile(r"^(mp_rank_\d+(?:_\d+)*)/([^/]+)$")
_NUMBERS = re.compile(r"^mp_rank_(\d+)((?:_\d{3})*)$")
_NUMBERED = re.compile(r"^(layer_wise_optimizer_|train_dataloader_dprank)(\d+)(\.pt)$")
ARGUMENTS = (
    "args.tensor_model_parallel_size",
    "args.pipeline_model_parallel_size",
    "args.expert_model_parallel_size",
    "args.expert_tensor_parallel_size",
    "args.use_distributed_optimizer",
    "args.no_save_optim",
)
"""What `missing` wants to know, as dotted paths into the model file of any rank."""


def is_legacy(inner: Collection[str]) -> bool:
    """Whether the paths relative to the directory are of the legacy format."""
    parts = (_PART.match(path) for path in inner)
    return any(m is not None and m.group(2) in (MODEL, OPTIMIZER) for m in parts)


def missing(inner: Collection[str], told: Mapping[str, object]) -> str | None:
    """A path that must be there and is not; None where all are. `told`: values of ARGUMENTS."""
    files: dict[str, set[str]] = {}
    for path in inner:
        if m := _PART.match(path):
            files.setdefault(m.group(1), set()).add(m.group(2))
    for directory in _grid(files, told):
        if MODEL not in files.get(directory, set()):
            return f"{directory}/{MODEL}"
    held = any(OPTIMIZER in names for names in files.values())
    for directory, names in sorted(files.items()):
        if held and MODEL in names and OPTIMIZER not in names:
            return f"{directory}/{OPTIMIZER}"
        if gap := _gap(names):
            return f"{directory}/{gap}"
    return None


def lacks_optimizer(inner: Collection[str], told: Mapping[str, object]) -> bool:
    """The distributed optimizer's file is wanted by the arguments and nowhere there."""
    wanted = told.get("args.use_distributed_optimizer") is True
    wanted = wanted and told.get("args.no_save_optim") is not True
    return wanted and not any(path.endswith(f"/{OPTIMIZER}") for path in inner)


def _grid(files: Mapping[str, set[str]], told: Mapping[str, object]) -> Iterator[str]:
    tensor = whole_number(told.get("args.tensor_model_parallel_size"))
    pipeline = whole_number(told.get("args.pipeline_model_parallel_size")) or 1
    expert = whole_number(told.get("args.expert_model_parallel_size")) or 1
    within = whole_number(told.get("args.expert_tensor_parallel_size")) or tensor
    if tensor is None:
        yield from _grid_by_names(files)
        return
    for t in range(tensor):
        for p in range(pipeline):
            stem = f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else "")
            if expert == 1:
                yield stem
            elif within == tensor:
                yield from (f"{stem}_{e:03d}" for e in range(expert))
            else:
                # Not every pair of tensor and expert rank exists: one of each must.
                own = [name for name in files if name.startswith(f"{stem}_")]
                yield min(own, default=f"{stem}_000")


def _grid_by_names(files: Mapping[str, set[str]]) -> Iterator[str]:
    seen = [(int(m.group(1)), m.group(2)) for name in files if (m := _NUMBERS.match(name))]
    tails = sorted({tail for _, tail in seen})
    for t in range(max((t for t, _ in seen), default=-1) + 1):
        yield from (f"mp_rank_{t:02d}{tail}" for tail in tails)


def _gap(names: Collection[str]) -> str | None:
    families: dict[tuple[str, str], dict[int, int]] = {}
    for name in names:
        if m := _NUMBERED.match(name):
            families.setdefault((m.group(1), m.group(3)), {})[int(m.group(2))] = len(m.group(2))
    for (stem, suffix), there in sorted(families.items()):
        for number in range(max(there)):
            if number not in there:
                return f"{stem}{number:0{there[max(there)]}d}{suffix}"
    return None
