"""Which save a run goes on from, and bringing it back on every rank.

Under a supervisor it is the save that was named, and nothing else. Alone it is the newest whole
one of the directory; where there are saves and none is whole nobody begins at step 0 by himself.
Must never leave a rank with another save than the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

from rtj_trainer import files, registered, sharded
from rtj_trainer.contract import Told
from rtj_trainer.ranks import Ranks

log = logging.getLogger("rtj_trainer")


@dataclass(frozen=True)
class Restored:
    """What came back. `step` is 0 and `path` None where there was nothing to resume from.

    `restored`: names of registered objects; `missing`: registered, and not in the save, so begun
    anew; `unclaimed`: in the save, and not registered; `inexact`: what cannot be exact, in words.
    """

    step: int = 0
    path: Optional[Path] = None
    restored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unclaimed: tuple[str, ...] = ()
    inexact: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Nothing is known to be missing."""
        return not (self.missing or self.unclaimed or self.inexact)

    def said(self) -> str:
        """One line for people."""
        if self.path is None:
            return "nothing to resume from: begins at step 0"
        parts = [f"resumed at step {self.step} from {self.path}: {', '.join(self.restored)}"]
        if self.missing:
            parts.append(f"NOT in the save, begun anew: {', '.join(self.missing)}")
        if self.unclaimed:
            parts.append(f"in the save, and not registered: {', '.join(self.unclaimed)}")
        parts += self.inexact
        return "; ".join(parts)


@dataclass(frozen=True)
class Found:
    """A save as it was read: `extras` are its parts beside the registered objects'."""

    path: Path
    extras: Mapping[str, Any]
    restored: tuple[str, ...]
    missing: tuple[str, ...]
    unclaimed: tuple[str, ...]


def restore(
    directory: Path,
    *,
    told: Told,
    things: Mapping[str, Any],
    ranks: Ranks,
    trusted: bool,
    allow_scratch: bool,
) -> Optional[Found]:
    """Loads the save into the registered objects of every rank; None where it begins at step 0.

    Raises RuntimeError where saves exist and none is whole; ValueError, on every rank, where one
    of them cannot read what the others read, and for a named save that cannot be loaded.
    """
    if ranks.rank == 0:
        files.remove_begun(directory)
    if told.resume == "":
        return None
    if told.resume:
        named = Path(told.resume)
        is_sharded = ranks.everyone(named.is_dir())[0]
        if is_sharded and (damage := _proved(named, ranks, lambda: _shards(named, ranks))[1]):
            raise ValueError(f"{named} cannot be loaded: {damage}")
        return _together(named, is_sharded, None, things, ranks, trusted)
    # Rank 0's word on what is there: each for itself could choose another, and wait for ever.
    seen = [(str(path), path.is_dir()) for _, path in files.saves_in(directory)]
    refused: list[str] = []
    for name, is_sharded in reversed(ranks.everyone(seen)[0]):
        path = Path(name)

        def look(path: Path = path, is_sharded: bool = is_sharded) -> Any:
            if is_sharded:
                return _shards(path, ranks)
            return files.read(path, trusted=trusted) if ranks.rank == 0 else None

        state, damage = _proved(path, ranks, look)
        if not damage:
            return _together(path, is_sharded, state, things, ranks, trusted)
        if ranks.rank == 0:
            log.warning("%s; the save before it is tried", damage)
        refused.append(damage)
    if refused and not allow_scratch:
        raise RuntimeError(
            f"{directory} has saves, and none is whole: {'; '.join(refused)}. Move them away, or "
            "begin at step 0 by restore(allow_scratch=True)"
        )
    return None


def _shards(path: Path, ranks: Ranks) -> None:
    sharded.prove(path, part=ranks.rank, of=ranks.world)


def _proved(path: Path, ranks: Ranks, look: Callable[[], Any]) -> tuple[Any, str]:
    """What this rank's look gave, and what any rank found damaged. Raises ValueError on every rank
    where one of them cannot look: that says nothing of the save."""
    found, damage, trouble = None, "", ""
    try:
        found = look()
    except files.NotWhole as error:
        damage = str(error)
    except Exception as error:
        trouble = f"rank {ranks.rank} cannot read {path}: {error}"
    said = ranks.everyone((damage, trouble))
    if any(trouble for _, trouble in said):
        raise ValueError("; ".join(trouble for _, trouble in said if trouble))
    return found, "; ".join(damage for damage, _ in said if damage)


def _together(
    path: Path,
    is_sharded: bool,
    state: Any,
    things: Mapping[str, Any],
    ranks: Ranks,
    trusted: bool,
) -> Found:
    if is_sharded:
        extras, restored, missing = sharded.restore(
            path, things=things, rank=ranks.rank, group=ranks.group
        )
        own = set(things) | set(registered.RESERVED)
        unclaimed = tuple(sorted(set(extras) - own))
        return Found(path, extras, tuple(restored), tuple(missing), unclaimed)
    problem = ""
    try:
        state = files.read(path, trusted=trusted) if state is None else state
        if not isinstance(state, dict):
            raise ValueError(f"{path.name} holds a {type(state).__name__}, not a dictionary")
    except (OSError, ValueError) as error:
        problem = f"rank {ranks.rank} cannot load {path}: {error}"
    problems = [said for said in ranks.everyone(problem) if said]
    if problems:
        advice = "; every rank needs the directory of rank 0's saves" if ranks.world > 1 else ""
        raise ValueError("; ".join(problems) + advice)
    restored, missing = registered.put_back(things, state, rank=ranks.rank)
    known = set(things) | set(registered.RESERVED)
    unclaimed = tuple(name for name in state if name not in known)
    extras = {name: state[name] for name in registered.RESERVED if name in state}
    return Found(path, extras, tuple(restored), tuple(missing), unclaimed)
