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
from typing import Any, Optional

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

    Raises RuntimeError where saves exist and none is whole, or where a rank cannot read what the
    others read; ValueError for a named save that cannot be loaded.
    """
    if ranks.rank == 0:
        files.remove_begun(directory)
    if told.resume == "":
        return None
    if told.resume:
        return _together(Path(told.resume), None, things, ranks, trusted)
    chosen: Optional[Path] = None
    state: Any = None
    refused: list[str] = []
    if ranks.rank == 0:
        for _, path in reversed(files.saves_in(directory)):
            try:
                if path.is_dir():
                    if not (path / ".metadata").is_file():
                        raise files.NotWhole(f"{path.name} has no .metadata: it did not finish")
                else:
                    state = files.read(path, trusted=trusted)
            except files.NotWhole as error:
                log.warning("%s; the save before it is tried", error)
                refused.append(str(error))
                continue
            chosen = path
            break
    choices = ranks.everyone((None if chosen is None else str(chosen), refused))
    name, refused = choices[0]
    if name is not None:
        return _together(Path(name), state, things, ranks, trusted)
    if refused and not allow_scratch:
        raise RuntimeError(
            f"{directory} has saves, and none is whole: {'; '.join(refused)}. Move them away, or "
            "begin at step 0 by restore(allow_scratch=True)"
        )
    return None


def _together(
    path: Path, state: Any, things: Mapping[str, Any], ranks: Ranks, trusted: bool
) -> Found:
    if path.is_dir():
        extras, restored, missing = sharded.restore(path, things=things, group=ranks.group)
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
    restored, missing = registered.put_back(things, state)
    known = set(things) | set(registered.RESERVED)
    unclaimed = tuple(name for name in state if name not in known)
    extras = {name: state[name] for name in registered.RESERVED if name in state}
    return Found(path, extras, tuple(restored), tuple(missing), unclaimed)
