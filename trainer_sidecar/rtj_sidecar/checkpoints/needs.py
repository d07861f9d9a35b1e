"""What of a save each pod needs on a disk of its own, by the frameworks' own loading code. Pure.

All files, unless the save itself proves that a rank's loader opens fewer. Also who cannot work with
a disk of its own in each pod, seen by what it leaves there. Must never leave out a file that a
loader may open: what is not proved is needed. Sources: docs/many-ranks.md.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

# deepspeed/runtime/engine.py 0.19.8, _get_rank_zero_ckpt_name and _get_ckpt_name.
_ZERO = re.compile(r"(?:^|/)(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_\d+_(?:optim|model)_states\.pt$")
_ELASTIC = "ds_config.zero_optimization.elastic_checkpoint"
_STAGE = "ds_config.zero_optimization.stage"
# orbax/checkpoint/_src/path/atomicity.py 0.12.8: the directory that the primary host renames.
_ORBAX_TEMPORARY = ".orbax-checkpoint-tmp"
ORBAX_RESTS_SECONDS = 60.0
# dlrover/python/elastic_agent/torch/ckpt_saver.py: where every node's agent stages its files.
_DLROVER_STAGE = "._dlrover_ckpt_stage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """`rank`: of this pod; `world_size`: pods; `procs`: trainer processes of each, as stated by
    the user."""

    rank: int
    world_size: int
    procs: int


def needed(
    paths: Collection[str],
    *,
    facts: Mapping[str, object],
    was: int,
    gang: Gang | None,
    wrote: Callable[[], Collection[str]],
) -> frozenset[str]:
    """Of a save's files those that this pod's loaders may open. `was`: pods that saved it;
    `wrote`: which of them the pod of this rank wrote, asked only where it matters.

    DeepSpeed without elastic checkpoints opens of all ranks' ZeRO partitions only its own
    (`_get_all_zero_checkpoint_state_dicts`), where data parallelism is all there is: then the
    partition's number is the process's global rank. torchrun's c10d rendezvous counts nodes by
    their names as text (dynamic_rendezvous.py, `_mark_rendezvous_complete`), where pod 10 comes
    before pod 2: so it counts only where this pod wrote just the partitions that its rank says.
    """
    everything = frozenset(paths)
    told = facts.get("deepspeed")
    if gang is None or was != gang.world_size or not isinstance(told, dict) or not told:
        return everything
    processes = gang.world_size * gang.procs
    for tag in told.values():
        if not isinstance(tag, dict) or not _is_data_parallel(tag, processes=processes):
            return everything
    own = frozenset(range(gang.rank * gang.procs, (gang.rank + 1) * gang.procs))
    written: dict[str, set[int]] = {}
    for path in wrote():
        if found := _ZERO.search(path):
            written.setdefault(posixpath.dirname(path), set()).add(int(found[1]))
    return frozenset(
        path
        for path in everything
        if not (found := _ZERO.search(path))
        or int(found[1]) in own
        or written.get(posixpath.dirname(path)) != own
    )


def _is_data_parallel(tag: Mapping[str, object], *, processes: int) -> bool:
    is_rigid = tag.get(_STAGE) is not None and not tag.get(_ELASTIC)
    grid = (tag.get("dp_world_size"), tag.get("mp_world_size"))
    return is_rigid and grid == (processes, 1) and not tag.get("num_experts")


def is_unfinished_orbax(path: str) -> bool:
    """A file of a save that this host has not given its final name."""
    return _ORBAX_TEMPORARY in path


def needs_one_directory(
    at_rest: Mapping[str, float], *, finished: Collection[tuple[str, str]]
) -> str | None:
    """Why the framework that left these files on one of several pods' own disks cannot go on so;
    None where nothing shows it. `at_rest`: path -> seconds since it changed last; `finished`:
    (layout, root) of saves that another pod finished.
    """
    roots = [root for layout, root in finished if layout == "orbax"]
    for path in at_rest:
        if _DLROVER_STAGE in path.split("/"):
            return (
                f"DLRover's agent on node 0 counts the files of all nodes in one directory, and "
                f"finds only its own here ({path})"
            )
        for root in roots:
            if path.startswith(f"{root}{_ORBAX_TEMPORARY}") and _stays(root, at_rest):
                return (
                    f"Orbax finished {root} on the primary host alone, and this host's arrays stay "
                    f"in {path.split('/')[0]}: the save lacks them. With disks of their own all "
                    "hosts must be primary (MultiprocessingOptions(primary_host=None))"
                )
    return None


def _stays(root: str, at_rest: Mapping[str, float]) -> bool:
    """Whether this host will not finish it any more; with primary_host=None a slow one does."""
    if any(path.startswith(f"{root}/") for path in at_rest):
        return False
    left = [age for path, age in at_rest.items() if path.startswith(f"{root}{_ORBAX_TEMPORARY}")]
    return bool(left) and min(left) >= ORBAX_RESTS_SECONDS


def too_large(*, needed_bytes: int, own_bytes: int, capacity: int) -> str | None:
    """Why a disk can never hold what a restore brings and the next save of this pod's own."""
    if needed_bytes + own_bytes <= capacity:
        return None
    return (
        f"a restore brings {needed_bytes:,} bytes to this pod and its next save writes "
        f"{own_bytes:,}, but the volume holds {capacity:,} in all"
    )


def refuses_world(*, facts: Mapping[str, object], processes: int) -> str | None:
    """Why the framework will not load it with that many processes; None where it may.

    DeepSpeed's ZeRO partitions fit one data-parallel size only (`_load_zero_checkpoint`).
    """
    told = facts.get("deepspeed")
    for tag in told.values() if isinstance(told, dict) else ():
        if not isinstance(tag, dict):
            continue
        stage, data, model = tag.get(_STAGE), tag.get("dp_world_size"), tag.get("mp_world_size")
        if not isinstance(stage, int) or stage < 1:
            continue
        if isinstance(data, int) and isinstance(model, int) and processes != data * model:
            return (
                f"DeepSpeed ZeRO-{stage} was saved by {data * model} processes and cannot be "
                f"loaded by {processes}: set spec.replicas back, or convert the save with "
                "ds_to_universal.py and load that"
            )
    return None
